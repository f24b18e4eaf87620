"""Other losses: regression, multi-hot labels, dense labels with ignored pixels, one weight an example."""

import torch
import torch.nn.functional as F
from torch import nn

import nfm

generator = torch.Generator().manual_seed(0)
x = torch.randn(16, 8, generator=generator)
method = nfm.preset("nfm", sites=["input", "1"], noise=nfm.Noise(0.1))


def network(outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, outputs))


regression = method(network(1), x, torch.randn(16, 1, generator=generator), criterion=F.mse_loss)
many_hot = (torch.rand(16, 4, generator=generator) > 0.5).float()
labels = method(network(4), x, many_hot, criterion=F.binary_cross_entropy_with_logits)

pixels = torch.randint(0, 3, (16, 8, 8), generator=generator)
pixels[:, 0] = 255  # ignored
dense = nfm.preset("nfm", sites=["input"], weights="sample")(
    nn.Conv2d(1, 3, 3, padding=1), torch.randn(16, 1, 8, 8, generator=generator), pixels,
    criterion=nn.CrossEntropyLoss(ignore_index=255),
)  # fmt: skip
print(f"regression {regression.loss:.3f}, multi-hot {labels.loss:.3f}, dense {dense.loss:.3f}")

# Anything else: the pair of labels and the weight.
own, partners, weight = regression.draw.pairs(torch.arange(16))
print(f"example 0 is mixed with example {partners[0]}, weight {weight:.3f}")
