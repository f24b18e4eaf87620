"""Blurs without chance: Gaussian and zoom. Both give the published bytes of CIFAR-10-C."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from nfm.evaluate.corruptions.planes import from_planes, to_planes
from nfm.evaluate.corruptions.settle import settle, unravel
from nfm.evaluate.corruptions.smooth import smooth
from nfm.evaluate.keyed import Stream

MARGIN = 1e-3  # levels: float32 sums of 30 images, ours and the published ones, are within 6e-4
Between = Callable[[Tensor, Tensor, Tensor], Tensor]  # first, second, weight of the second


def gaussian_blur(pixels: Tensor, stream: Stream, sigma: float) -> Tensor:
    """Convolve with a Gaussian of `sigma` pixels, borders repeated."""
    return smooth(pixels, sigma)


class Taps(NamedTuple):
    """Both pixels that each place of an axis reads, and the weight of the second."""

    first: Tensor
    second: Tensor
    weight: Tensor  # float64


def zoom_blur(pixels: Tensor, stream: Stream, stop: float, step: float) -> Tensor:
    """Average the image and its centre magnified by 1, 1 + step, ... below `stop`."""
    planes = to_planes(pixels)
    factors = np.arange(1, stop, step).tolist()
    image = planes.float()
    total = image * 2  # itself, and magnified by 1
    for factor in factors[1:]:
        total += magnify(image, factor)
    exact = functools.partial(_zoom_exactly, planes, factors)
    return from_planes(settle(total.div_(len(factors) + 1), exact, margin=MARGIN), pixels)


def _zoom_exactly(planes: Tensor, factors: list[float], places: Tensor) -> Tensor:
    """Return the blurred level at `places` of uint8 planes (H, W, N), in the published order of operations.

    Each magnified image is interpolated in float64, ((value * row weight) * column weight) summed over the four
    neighbours as in scipy.ndimage.zoom, and rounded to float32, in which the images are summed.
    """
    row, column, plane = unravel(places, planes.shape)
    down, right = (
        _all_taps(size, factors[1:], at) for size, at in ((planes.shape[0], row), (planes.shape[1], column))
    )
    levels = torch.arange(256, dtype=torch.float64, device=planes.device).div_(255).float()
    mixed = torch.zeros(down.weight.shape, dtype=torch.float64, device=planes.device)  # (factors - 1, M)
    for y, above in ((down.first, 1 - down.weight), (down.second, down.weight)):
        for x, beside in ((right.first, 1 - right.weight), (right.second, right.weight)):
            mixed += levels[planes[y, x, plane].long()].double() * above * beside
    image = levels[planes[row, column, plane].long()]
    total = functools.reduce(torch.add, [image, *mixed.float()])
    return (((image + total) / (len(factors) + 1)).clamp_(0, 1) * 255).to(torch.uint8)


def _all_taps(size: int, factors: list[float], places: Tensor) -> Taps:
    """Return the taps of some places for all factors: (factors, M) each."""
    taps = [_taps(size, factor, places.device) for factor in factors]
    first, second, weight = (torch.stack(column)[:, places] for column in zip(*taps, strict=True))
    return Taps(first, second, weight)


def magnify(planes: Tensor, factor: float, *, between: Between = torch.lerp) -> Tensor:
    """Return the centre of planes (H, W, N) enlarged by `factor` to the full size, bilinear."""
    if factor == 1:
        return planes
    for axis in (0, 1):
        first, second, weight = _taps(planes.shape[axis], factor, planes.device)
        share = weight.to(planes.dtype).view([-1] + [1] * (2 - axis))
        ends = planes.index_select(axis, first), planes.index_select(axis, second)
        planes = between(*ends, share)
    return planes


@functools.lru_cache(maxsize=256)
def _taps(size: int, factor: float, device: torch.device) -> Taps:
    crop = math.ceil(size / factor)
    enlarged = round(crop * factor)
    place = np.arange(size) + (enlarged - size) // 2
    source = (crop - 1) / max(enlarged - 1, 1) * place
    first = np.floor(source)
    offset = (size - crop) // 2
    indices = (first, np.minimum(first + 1, crop - 1))
    lower, upper = (torch.from_numpy(index + offset).long().to(device) for index in indices)
    return Taps(lower, upper, torch.from_numpy(source - first).to(device))
