"""Small networks and batches in float64 for the tests of the theory."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from nets import batch, build


def smooth_net(outputs: int = 3, *, features: int = 3, seed: int = 0) -> nn.Sequential:
    """Return a smooth network with the sites "input" and "1"."""
    layers = lambda: nn.Sequential(  # noqa: E731
        nn.Linear(features, 5), nn.GELU(), nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, outputs)
    )
    return build(layers, seed).double()


def examples(size: int = 6, features: int = 3, *, classes: int = 3, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Return keyed vectors [size, features] and labels [size]."""
    return batch(size, features, classes=classes, seed=seed, dtype=torch.float64)
