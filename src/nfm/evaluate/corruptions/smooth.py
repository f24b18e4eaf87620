"""Gaussian smoothing: of images, to the bit as SciPy does it, and of drawn fields, exact in any order."""

from __future__ import annotations

import functools

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nfm.evaluate.corruptions.planes import Border, edge
from nfm.evaluate.corruptions.settle import settle, unravel

# With fields of 2**-20 up to 6.2 and weights of 2**-26 that sum to 1, products fill 49 of 53 bits.
FIELD, WEIGHT = 2.0**20, 2.0**26
MARGIN = 2.0**-14  # levels: float32 rounds 255 by 2**-17; two products and two sums a weight of the kernel


def gaussian_kernel(sigma: float, truncate: float) -> NDArray[np.float64]:
    """Return the normalised kernel over -radius ... radius with radius = truncate * sigma, rounded."""
    radius = int(truncate * sigma + 0.5)
    if radius == 0:
        return np.ones(1)
    places = np.arange(-radius, radius + 1)
    weights = np.exp(-0.5 / (sigma * sigma) * places**2)
    return weights / weights.sum()


def smooth(pixels: Tensor, sigma: float) -> Tensor:
    """Convolve uint8 (B, C, H, W) with a Gaussian cut at 4 sigma, borders repeated; truncated to uint8."""
    kernel = gaussian_kernel(sigma, 4.0).tolist()
    if len(kernel) == 1:
        return pixels.clone()
    exact = functools.partial(_exactly, pixels, kernel)
    return settle(_roughly(pixels, sigma), exact, margin=MARGIN * len(kernel))


def _roughly(pixels: Tensor, sigma: float) -> Tensor:
    """Return the smoothed levels in float32, as products with a matrix on either side."""
    rows, columns = (
        _matrix(size, sigma, 4.0, edge).float().to(pixels.device) / WEIGHT for size in pixels.shape[2:]
    )
    return rows @ (pixels.float() @ columns.T)


def _exactly(pixels: Tensor, kernel: list[float], places: Tensor) -> Tensor:
    """Return the smoothed level at `places`, float64 in the order of scipy.ndimage.correlate1d: rows, columns."""
    radius, (height, width) = len(kernel) // 2, pixels.shape[2:]
    plane, row, column = unravel(places, torch.Size((pixels.shape[:2].numel(), height, width)))
    around = torch.arange(-radius, radius + 1, device=pixels.device)[:, None]
    rows, columns = edge(row + around, height), edge(column + around, width)
    window = pixels.view(-1)[(plane * height + rows)[:, None] * width + columns]
    window = window.double().div_(255)  # (2 radius + 1, 2 radius + 1, M)
    for _ in (0, 1):
        window = _sum_pairs(window, kernel)
    return (window * 255).to(torch.uint8)


def _sum_pairs(window: Tensor, kernel: list[float]) -> Tensor:
    """Sum over the first axis: the centre, then the pairs from the outermost inwards, as SciPy does."""
    radius = len(kernel) // 2
    total = window[radius] * kernel[radius]
    for reach in range(radius, 0, -1):
        total += (window[radius - reach] + window[radius + reach]).mul_(kernel[radius - reach])
    return total


def smooth_noise(field: Tensor, sigma: float, *, truncate: float, border: Border) -> Tensor:
    """Convolve a drawn field (B, H, W), up to 6.2 in size, with a Gaussian; float64.

    Field and weights are rounded such that every sum is exact: its order, and so the batch, changes no bit.
    """
    rows, columns = (
        _matrix(size, sigma, truncate, border).to(field.device) for size in (field.shape[1], field.shape[2])
    )
    across = (field.double() * FIELD).round_() @ columns.T
    return rows @ across.div_(WEIGHT).round_() / (FIELD * WEIGHT)


@functools.lru_cache(maxsize=32)
def _matrix(size: int, sigma: float, truncate: float, border: Border) -> Tensor:
    """Return the convolution along one axis as a matrix (size, size) of whole numbers, in 1 / WEIGHT."""
    kernel = gaussian_kernel(sigma, truncate)
    radius = len(kernel) // 2
    places = torch.arange(size)[:, None] + torch.arange(-radius, radius + 1)
    matrix = torch.zeros(size, size, dtype=torch.float64)
    matrix.scatter_add_(1, border(places, size), torch.from_numpy(kernel).expand(size, -1))
    return (matrix * WEIGHT).round_()
