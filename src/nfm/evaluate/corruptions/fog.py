"""Fog: a fractal cloud by the diamond-square method, on a torus whose side is a power of two."""

from __future__ import annotations

import torch
from torch import Tensor

from nfm.evaluate.corruptions.planes import to_levels
from nfm.evaluate.keyed import Stream

ROUGHNESS = 100.0  # of the first step; divided by the decay after each


def fog(pixels: Tensor, stream: Stream, density: float, decay: float) -> Tensor:
    """Add `density` times a cloud, and dim such that the brightest value of the image stays."""
    image = pixels.float().div_(255)
    brightest = image.amax((1, 2, 3), keepdim=True)
    height, width = pixels.shape[2:]
    cloud = draw_cloud(stream, max(height, width), decay)[:, None, :height, :width]
    return to_levels((image + cloud * density) * brightest / (brightest + density))


def draw_cloud(stream: Stream, at_least: int, decay: float) -> Tensor:
    """Return a height map an example, from 0 to 1: float32 (B, S, S), S the next power of two."""
    side = 1 << (at_least - 1).bit_length()
    drawn = stream.uniform((side, side)).mul_(2).sub_(1)  # one number for each point that is filled
    heights = torch.zeros_like(drawn)
    step, roughness = side, ROUGHNESS
    while step >= 2:
        _fill(heights, drawn, step, roughness)
        step //= 2
        roughness /= decay
    heights -= heights.amin((1, 2), keepdim=True)
    return heights / heights.amax((1, 2), keepdim=True)


def _fill(heights: Tensor, drawn: Tensor, step: int, roughness: float) -> None:
    """Set the centres of squares of side `step`, then those of diamonds, to the mean of four and a draw."""
    whole, half = slice(0, None, step), slice(step // 2, None, step)
    wiggle = roughness * roughness  # the published roughness counts twice
    corners = heights[:, whole, whole]
    columns = corners + corners.roll(-1, 1)
    heights[:, half, half] = (columns + columns.roll(-1, 2)) / 4 + drawn[:, half, half] * wiggle
    centres = heights[:, half, half]
    across = centres + centres.roll(1, 1) + (corners + corners.roll(-1, 2))
    heights[:, whole, half] = across / 4 + drawn[:, whole, half] * wiggle
    down = centres + centres.roll(1, 2) + (corners + corners.roll(-1, 1))
    heights[:, half, whole] = down / 4 + drawn[:, half, whole] * wiggle
