"""The laws of one noise value."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Law:
    """A zero-mean law of one noise value: how to fill a tensor at a level, and its root mean square at level 1."""

    fill: Callable[[Tensor, torch.Generator, float], Tensor]
    rms: float


LAWS: dict[str, Law] = {
    "gaussian": Law(lambda out, generator, level: out.normal_(0, level, generator=generator), 1.0),
    "uniform": Law(
        lambda out, generator, level: out.uniform_(-level, level, generator=generator), 1 / math.sqrt(3)
    ),
    "rademacher": Law(
        lambda out, generator, level: out.random_(0, 2, generator=generator).sub_(0.5).mul_(2 * level), 1.0
    ),
}
