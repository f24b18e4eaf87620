"""Blurs without chance: defocus, Gaussian and zoom. Each gives the published bytes of CIFAR-10-C."""

from __future__ import annotations

import functools
import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nfm.evaluate.corruptions.planes import extend, from_planes, mirror, to_levels, to_planes
from nfm.evaluate.corruptions.smooth import smooth
from nfm.evaluate.keyed import Stream

TINY_WEIGHT = 1e-12  # of a kernel: below, 256 levels times it cannot reach the next level


def gaussian_blur(pixels: Tensor, stream: Stream, sigma: float) -> Tensor:
    """Convolve with a Gaussian of `sigma` pixels, borders repeated."""
    return from_planes(to_levels(smooth(to_planes(pixels).double().div_(255), sigma)), pixels)


def defocus_blur(pixels: Tensor, stream: Stream, radius: float, softness: float) -> Tensor:
    """Convolve with a disk of `radius` pixels whose rim is softened, borders mirrored.

    Offsets of equal weight are summed as whole numbers first: few products are left.
    """
    planes = to_planes(pixels)
    reach, groups = _grouped_disk(radius, softness)
    height, width, _ = planes.shape
    extended = extend(extend(planes, reach, 0, mirror), reach, 1, mirror).to(torch.int32)
    total = torch.zeros(planes.shape, dtype=torch.float64, device=planes.device)
    for weight, offsets in groups:
        views = [extended[y : y + height, x : x + width] for y, x in offsets]
        total += functools.reduce(torch.add, views).double().mul_(weight)
    return from_planes(total.clamp_(0, 255).to(torch.uint8), pixels)


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


def zoom_blur(pixels: Tensor, stream: Stream, stop: float, step: float) -> Tensor:
    """Average the image and its centre magnified by 1, 1 + step, ... below `stop`; sums are float32."""
    image = to_planes(pixels).double().div_(255).float()
    exact = image.double()
    factors = np.arange(1, stop, step).tolist()
    total = torch.zeros_like(image)
    for factor in factors:
        total += magnify(exact, factor).float()
    return from_planes(to_levels((image + total) / (len(factors) + 1)), pixels)


def magnify(planes: Tensor, factor: float) -> Tensor:
    """Return the centre of float64 planes (H, W, N) enlarged to the full size, bilinear.

    The four products are summed in the order of scipy.ndimage.zoom, to the bit.
    """
    if factor == 1:
        return planes
    first, second, weight = _taps(planes.shape[0], factor, planes.device)
    upper = planes.index_select(0, first) * (1 - weight)[:, None, None]
    lower = planes.index_select(0, second) * weight[:, None, None]
    first, second, weight = _taps(planes.shape[1], factor, planes.device)
    left, right = (1 - weight)[:, None], weight[:, None]
    total = upper.index_select(1, first).mul_(left)
    total += upper.index_select(1, second).mul_(right)
    total += lower.index_select(1, first).mul_(left)
    total += lower.index_select(1, second).mul_(right)
    return total


@functools.lru_cache(maxsize=256)
def _taps(size: int, factor: float, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Return both pixels that each of `size` places reads, and the weight of the second: all (size,)."""
    crop = math.ceil(size / factor)
    enlarged = round(crop * factor)
    place = np.arange(size) + (enlarged - size) // 2
    source = (crop - 1) / max(enlarged - 1, 1) * place
    first = np.floor(source)
    offset = (size - crop) // 2
    indices = (first, np.minimum(first + 1, crop - 1))
    lower, upper = (torch.from_numpy(index + offset).long().to(device) for index in indices)
    return lower, upper, torch.from_numpy(source - first).to(device)
