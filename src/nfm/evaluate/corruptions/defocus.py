"""Defocus blur: convolution with a disk whose rim is softened. It gives the published bytes of CIFAR-10-C."""

from __future__ import annotations

import functools

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nfm.evaluate.corruptions.planes import extend, mirror, to_uint8
from nfm.evaluate.keyed import Stream

TINY_WEIGHT = 1e-12  # of a kernel: below, 256 levels times it cannot reach the next level


def defocus_blur(pixels: Tensor, stream: Stream, radius: float, softness: float) -> Tensor:
    """Convolve with a disk of `radius` pixels, borders mirrored.

    Pixels of equal weight are summed as whole numbers first: few products are left, and float64 holds them so
    well that only the kernel's own float32 weights decide about a level. A shift in two dimensions is one
    in memory, as rows are left extended.
    """
    reach, groups = _grouped_disk(radius, softness)
    height, width = pixels.shape[2:]
    wide = extend(extend(pixels.to(torch.int16), reach, 2, mirror), reach, 3, mirror)
    stride = wide.shape[3]
    flat, length = wide.flatten(), wide.numel() - 2 * reach * (stride + 1)
    total = torch.zeros(wide.numel(), dtype=torch.float64, device=pixels.device)
    for weight, offsets in groups:
        views = [flat.narrow(0, y * stride + x, length) for y, x in offsets]
        total[:length].add_(_sum(views), alpha=weight)
    inner = total.view(wide.shape)[:, :, :height, :width]
    return to_uint8(inner.clamp(0, 255))


def _sum(views: list[Tensor]) -> Tensor:
    """Return the sum of int16 views as float64; as many at once as 16 bits hold."""
    parts = [functools.reduce(torch.add, views[start : start + 128]) for start in range(0, len(views), 128)]
    return functools.reduce(torch.add, [part.double() for part in parts])


@functools.cache
def _grouped_disk(radius: float, softness: float) -> tuple[int, list[tuple[float, list[tuple[int, int]]]]]:
    """Return how far the kernel reaches, and for each weight the places (y, x) in the window that have it."""
    kernel = soft_disk(radius, softness)
    kernel[kernel < TINY_WEIGHT] = 0
    centre = len(kernel) // 2
    reach = int(np.abs(np.argwhere(kernel) - centre).max())
    window = kernel[centre - reach : centre + reach + 1, centre - reach : centre + reach + 1]
    weights = [weight for weight in np.unique(window) if weight]
    return reach, [(float(weight), _places(window == weight)) for weight in weights]


def _places(where: NDArray[np.bool_]) -> list[tuple[int, int]]:
    return [(int(y), int(x)) for y, x in np.argwhere(where)]


def soft_disk(radius: float, softness: float) -> NDArray[np.float32]:
    """Return a disk of weight 1 on a grid of at least 17x17, smoothed in float32 by 3 or 5 Gaussian taps."""
    half, taps = (8, 3) if radius <= 8 else (int(radius), 5)
    axis = np.arange(-half, half + 1)
    disk = (axis[:, None] ** 2 + axis**2 <= radius**2).astype(np.float32)
    disk /= disk.sum()
    kernel = np.exp(-((np.arange(taps) - taps // 2) ** 2) / (2.0 * softness**2))
    weights = (kernel / kernel.sum()).astype(np.float32)
    for axis_of_kernel in (1, 0):
        disk = _slide(disk, weights, axis_of_kernel)
    return disk


def _slide(disk: NDArray[np.float32], weights: NDArray[np.float32], axis: int) -> NDArray[np.float32]:
    reach, size = len(weights) // 2, len(disk)
    padded = np.pad(disk, [(reach, reach) if a == axis else (0, 0) for a in (0, 1)], mode="reflect")
    shifted = [padded.take(range(start, start + size), axis) for start in range(len(weights))]
    return functools.reduce(np.add, [weight * view for weight, view in zip(weights, shifted, strict=True)])
