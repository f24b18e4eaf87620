"""Motion blur as ImageMagick computes it: a one-sided Gaussian along a line of whole pixels.

The line of an image has its own angle; borders are repeated. ImageMagick rounds to 16 bits and then
cuts to 8, which together is floor(sum + 1/514); here the sum is of whole numbers, so its order is free.
"""

from __future__ import annotations

import functools
import math

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from nfm.evaluate.keyed import Stream

BITS = 22  # weights in 2**-22: 255 levels fill 30 of 31 bits


def motion_blur(pixels: Tensor, stream: Stream, radius: float, sigma: float) -> Tensor:
    """Smear along a line of -45 to 45 degrees, drawn for each image."""
    angle = stream.uniform((1,)).flatten() * 90 - 45
    return smear(pixels, angle, radius, sigma)


def smear(pixels: Tensor, angle: Tensor, radius: float, sigma: float) -> Tensor:
    """Return uint8 (B, C, H, W) smeared along `angle` (B,), in degrees from the x axis towards rows below.

    Images are sorted by angle: at each step along the line, runs of them are shifted by the same pixels.
    """
    weights = _one_sided(2 * math.ceil(radius) + 1, sigma)
    order = angle.argsort()
    steps = _steps(angle[order].tolist(), len(weights))
    least, most = steps.min((0, 2)), steps.max((0, 2))
    top, left = (-least).tolist()
    bottom, right = most.tolist()
    wide = F.pad(pixels[order].float(), (left, right, top, bottom), mode="replicate").to(torch.int32)
    total = torch.full(pixels.shape, (1 << BITS) // 514, dtype=torch.int32, device=pixels.device)
    strides = wide.stride()
    for weight, step in zip(weights, steps - least[:, None], strict=True):
        for start, stop, (row, column) in _runs(step):
            offset = start * strides[0] + row * strides[2] + column
            shifted = wide.as_strided((stop - start, *pixels.shape[1:]), strides, offset)
            total[start:stop].add_(shifted, alpha=weight)
    return torch.empty_like(pixels).index_copy_(0, order, (total >> BITS).to(torch.uint8))


def _runs(step: NDArray[np.int64]) -> list[tuple[int, int, tuple[int, int]]]:
    """Return (start, stop, value) of the runs of equal columns of `step`, (2, B)."""
    starts = [0, *(np.flatnonzero((step[:, 1:] != step[:, :-1]).any(0)) + 1).tolist()]
    stops = [*starts[1:], step.shape[1]]
    return [(i, j, (int(step[0, i]), int(step[1, i]))) for i, j in zip(starts, stops, strict=True)]


@functools.cache
def _one_sided(width: int, sigma: float) -> list[int]:
    """Return exp(-i^2 / 2 sigma^2) for i from 0 as whole numbers that sum to 2**BITS, up to the last above 0."""
    weights = np.exp(-(np.arange(width) ** 2) / (2 * sigma**2))
    whole = np.rint(weights / weights.sum() * 2**BITS).astype(int)
    whole[0] += 2**BITS - whole.sum()
    return [int(weight) for weight in whole if weight]


def _steps(angles: list[float], count: int) -> NDArray[np.int64]:
    """Return how many rows and columns away each step along a line of each angle is: (count, 2, B)."""
    # math, not a vectorised sine: its last bit may depend on where in the batch the angle stands.
    along = np.array([[math.sin(math.radians(angle)), math.cos(math.radians(angle))] for angle in angles])
    return np.ceil(np.arange(count)[:, None, None] * along.T - 0.5).astype(np.int64)
