"""The functional form: one call a step returns the loss, the output and the draw behind them."""

import torch
import torch.nn.functional as F

import nfm
from nfm.data import Batches, load
from nfm.models import build

data = load("digits")
model = build("small_conv", num_classes=10, in_channels=1, image_size=8, mean=data.mean, std=data.std)
method = nfm.NoisyFeatureMixup(sites=["input", "stage*"], alpha=1.0, noise=nfm.Noise(0.4, 0.2), seed=1)
print(method.check(model, torch.rand(4, 1, 8, 8)))  # a dry run: each site fires once and carries the batch

optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
for epoch in range(4):
    for batch in Batches(data.train, batch_size=100).epoch(epoch):
        outcome = method(model, batch.x, batch.y)
        optimizer.zero_grad()
        outcome.loss.backward()
        optimizer.step()
    draw = outcome.draw
    print(f"epoch {epoch}: loss {outcome.loss.item():.3f}, mixed at {draw.site!r}, weight {draw.weight:.3f}")

# The same loss by soft targets: equal for cross-entropy.
soft = F.cross_entropy(outcome.output, draw.soft_targets(batch.y, 10))
print(f"as soft targets: {soft.item():.3f}")
