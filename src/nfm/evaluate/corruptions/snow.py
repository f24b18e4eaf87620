"""Snow: blown flakes over an image that is whitened a little."""

from __future__ import annotations

import torch
from torch import Tensor

from nfm.evaluate.corruptions.blurs import magnify
from nfm.evaluate.corruptions.motion import smear
from nfm.evaluate.corruptions.planes import from_planes, to_levels, to_planes
from nfm.evaluate.keyed import Stream

LUMA = (0.299, 0.587, 0.114)  # ITU-R BT.601


def snow(
    pixels: Tensor,
    stream: Stream,
    mean: float,
    deviation: float,
    size: float,
    threshold: float,
    radius: float,
    sigma: float,
    kept: float,
) -> Tensor:
    """Draw normal flakes, enlarge them, drop those below `threshold`, smear them downwards and add them.

    `kept` is the share of the image that is not whitened.
    """
    flakes = _draw_flakes(pixels, stream, mean, deviation, size, threshold)
    angle = stream.uniform((1,), purpose=1).flatten() * 90 - 135
    layer = smear(flakes, angle, radius, sigma).float().div_(255)
    image = pixels.float().div_(255)
    white = torch.maximum(image, _luma(image).mul_(1.5).add_(0.5)).mul_(1 - kept)
    return to_levels(image.mul_(kept).add_(white).add_(layer).add_(layer.flip(2, 3)))


def _draw_flakes(
    pixels: Tensor, stream: Stream, mean: float, deviation: float, size: float, threshold: float
) -> Tensor:
    """Return flakes on black: uint8 (B, 1, H, W)."""
    drawn = stream.normal((1, *pixels.shape[2:])).mul_(deviation).add_(mean)
    grown = from_planes(magnify(to_planes(drawn), size, between=_between), drawn)
    return to_levels(grown.mul_(grown >= threshold))


def _between(first: Tensor, second: Tensor, weight: Tensor) -> Tensor:
    """Interpolate; one rounding an operation, so no bit depends on where in the batch a plane stands."""
    return (second - first).mul_(weight).add_(first)


def _luma(image: Tensor) -> Tensor:
    red, green, blue = image.split(1, dim=1)
    return (red * LUMA[0]).add_(green * LUMA[1]).add_(blue * LUMA[2])
