"""NFM in an existing training loop: attach once, then take the loss of whatever the network returns."""

import torch
from torch import nn

import nfm

model = nn.Sequential(
    nn.Sequential(nn.Linear(2, 64), nn.ReLU()),
    nn.Sequential(nn.Linear(64, 64), nn.ReLU()),
    nn.Linear(64, 2),
)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
generator = torch.Generator().manual_seed(0)
x = torch.randn(256, 2, generator=generator)
y = (x.norm(dim=1) > 1.2).long()

mixer = nfm.attach(model, noise=nfm.Noise(add=0.1, mult=0.1))  # line one
print(mixer)

for _ in range(200):
    optimizer.zero_grad()
    loss = mixer.loss(model(x), y)  # line two
    loss.backward()
    optimizer.step()

model.eval()  # nothing is mixed in evaluation mode
accuracy = (model(x).argmax(1) == y).float().mean()
print(f"training accuracy {100 * accuracy:.1f}%")
mixer.detach()  # every trace removed
