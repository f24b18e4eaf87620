"""Gaussian smoothing, twice: in SciPy's own order of operations, and exact in any order.

The published blurs were truncated to 8 bits, so where an image is flat the last bit of a sum decides about a
level. `smooth` therefore repeats SciPy's arithmetic to the bit. `smooth_noise` serves fields that are drawn
here: its numbers are rounded such that every sum is exact, whatever the matrix product's order.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nfm.evaluate.corruptions.planes import Border, edge, extend

# With fields of 2**-20 up to 6.2 and weights of 2**-26 that sum to 1, products fill 49 of 53 bits.
FIELD, WEIGHT = 2.0**20, 2.0**26


def gaussian_kernel(sigma: float, truncate: float) -> NDArray[np.float64]:
    """Return the normalised kernel over -radius ... radius with radius = truncate * sigma, rounded."""
    radius = int(truncate * sigma + 0.5)
    if radius == 0:
        return np.ones(1)
    places = np.arange(-radius, radius + 1)
    weights = np.exp(-0.5 / (sigma * sigma) * places**2)
    return weights / weights.sum()


def smooth(planes: Tensor, sigma: float) -> Tensor:
    """Convolve float64 planes (H, W, N), borders repeated, cut at 4 sigma; to the bit as SciPy does."""
    kernel = gaussian_kernel(sigma, 4.0).tolist()
    for axis in (0, 1):
        planes = _correlate(planes, kernel, axis)
    return planes


def _correlate(planes: Tensor, kernel: list[float], axis: int) -> Tensor:
    """Sum from the centre, then the pairs from the outermost inwards: scipy.ndimage.correlate1d's order."""
    radius, size = len(kernel) // 2, planes.shape[axis]
    extended = extend(planes, radius, axis, edge)
    total = planes * kernel[radius]
    for reach in range(radius, 0, -1):
        pair = extended.narrow(axis, radius - reach, size) + extended.narrow(axis, radius + reach, size)
        total += pair.mul_(kernel[radius - reach])
    return total


def smooth_noise(field: Tensor, sigma: float, *, truncate: float, border: Border) -> Tensor:
    """Convolve a drawn field (B, H, W) with a Gaussian; float64, the same bits in every batch."""
    rows, columns = (
        _matrix(size, sigma, truncate, border).to(field.device) for size in (field.shape[1], field.shape[2])
    )
    across = (field.double() * FIELD).round_() @ columns.T
    return rows @ (across / WEIGHT).round_() / (FIELD * WEIGHT)


@functools.lru_cache(maxsize=32)
def _matrix(size: int, sigma: float, truncate: float, border: Border) -> Tensor:
    """Return the convolution along one axis as a matrix (size, size) of whole numbers, in 1 / WEIGHT."""
    kernel = gaussian_kernel(sigma, truncate)
    radius = len(kernel) // 2
    places: Any = torch.arange(size)[:, None] + torch.arange(-radius, radius + 1)
    matrix = torch.zeros(size, size, dtype=torch.float64)
    matrix.scatter_add_(1, border(places, size), torch.from_numpy(kernel).expand(size, -1))
    return (matrix * WEIGHT).round_()
