"""Motion blur as ImageMagick computes it: a one-sided Gaussian along a line of whole pixels.

The line of an image has its own angle; borders are repeated. ImageMagick rounds to 16 bits and then
cuts to 8, which together is floor(sum + 1/514); here the sum is of whole numbers, so its order is free.
"""

from __future__ import annotations

import functools
import math

import numpy as np
import torch
from torch import Tensor

from nfm.evaluate.keyed import Stream

BITS = 22  # weights in 2**-22: 255 levels fill 30 of 31 bits


def motion_blur(pixels: Tensor, stream: Stream, radius: float, sigma: float) -> Tensor:
    """Smear along a line of -45 to 45 degrees, drawn for each image."""
    angle = stream.uniform((1,)).flatten() * 90 - 45
    return smear(pixels, angle, radius, sigma)


def smear(pixels: Tensor, angle: Tensor, radius: float, sigma: float) -> Tensor:
    """Return uint8 (B, C, H, W) smeared along `angle` (B,), in degrees from the x axis towards rows below."""
    batch, channels, height, width = pixels.shape
    source = pixels.flatten()
    planes = torch.arange(0, source.numel(), height * width, dtype=torch.int32, device=pixels.device)
    total = torch.full(pixels.shape, (1 << BITS) // 514, dtype=torch.int32, device=pixels.device)
    weights = _one_sided(2 * math.ceil(radius) + 1, sigma)
    for weight, (rows, columns) in zip(weights, _offsets(angle, len(weights)), strict=True):
        row, column = (
            (torch.arange(size, dtype=torch.int32, device=pixels.device) + offset[:, None]).clamp_(
                0, size - 1
            )
            for size, offset in ((height, rows), (width, columns))
        )
        start = planes.view(batch, channels, 1) + row[:, None] * width
        places = start[..., None] + column[:, None, None]
        total += source.index_select(0, places.flatten()).to(torch.int32).mul_(weight).view_as(total)
    return (total >> BITS).to(torch.uint8)


@functools.cache
def _one_sided(width: int, sigma: float) -> list[int]:
    """Return exp(-i^2 / 2 sigma^2) for i from 0, as whole numbers that sum to 2**BITS."""
    weights = np.exp(-(np.arange(width) ** 2) / (2 * sigma**2))
    whole = np.rint(weights / weights.sum() * 2**BITS).astype(int)
    whole[0] += 2**BITS - whole.sum()
    return [int(weight) for weight in whole]


def _offsets(angle: Tensor, count: int) -> list[tuple[Tensor, Tensor]]:
    """Return for each step along the line how many rows and columns away it is: int32 (B,) each."""
    # math, not torch: a vectorised sine may depend on where in the batch the angle stands.
    radians = [math.radians(degrees) for degrees in angle.tolist()]
    along = np.array([[math.sin(a), math.cos(a)] for a in radians])
    steps = np.ceil(np.arange(count)[:, None, None] * along.T - 0.5).astype(np.int32)
    found = torch.from_numpy(steps).to(angle.device)
    return [(found[step, 0], found[step, 1]) for step in range(count)]
