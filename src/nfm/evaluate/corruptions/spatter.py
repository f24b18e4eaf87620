"""Spatter: drops of water or mud on the lens.

Written without OpenCV, which the published generator calls. Two points differ from it: distances to an edge
are Euclidean (there: a 5x5 chamfer, up to 2% off), and an image without a single drop stays
as it is (there it is divided by zero and turns black).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from nfm.evaluate.corruptions.edges import distance_to, find_edges
from nfm.evaluate.corruptions.planes import edge, to_levels
from nfm.evaluate.corruptions.smooth import smooth_noise
from nfm.evaluate.keyed import Stream

WATER, MUD = (175, 238, 238), (63, 42, 20)  # make_cifar_c.py: "pale turquoise" and "mud brown", in levels
CANNY = (50, 150)  # make_cifar_c.py: thresholds of the edges of drops
DEEPEST = 20  # make_cifar_c.py: distances are cut there
SHADING = ((-2, -1, 0), (-1, 1, 1), (0, 1, 2))  # make_cifar_c.py: light from the lower right


def spatter(
    pixels: Tensor,
    stream: Stream,
    mean: float,
    deviation: float,
    size: float,
    threshold: float,
    strength: float,
    muddy: float,
) -> Tensor:
    """Smooth normal noise by `size` pixels; where it is above `threshold` there is water, or mud."""
    noise = smooth_noise(stream.normal(pixels.shape[2:]), size, truncate=4.0, border=edge)
    liquid = noise * deviation + mean
    liquid *= liquid >= threshold
    image = pixels.float().div_(255)
    if muddy:
        cover = smooth_noise((liquid > threshold).float(), strength, truncate=4.0, border=edge).float()
        cover = (cover * (cover >= 0.8))[:, None]  # 0.8: make_cifar_c.py
        return to_levels(image * (1 - cover) + cover * _colour(MUD, image))
    shine = _shade(to_levels(liquid)) * strength
    return to_levels(image + shine[:, None] * _colour(WATER, image))


def _colour(levels: tuple[int, int, int], image: Tensor) -> Tensor:
    return torch.tensor(levels, device=image.device).view(3, 1, 1) / 255


def _shade(drops: Tensor) -> Tensor:
    """Return how much light each pixel of uint8 drops (B, H, W) sends back, from 0 to 1: float32."""
    depth = _box(distance_to(find_edges(drops, *CANNY), DEEPEST)).floor_()
    relief = _relief(_equalise(depth)).clamp_(0, 255)
    light = drops * _box(relief).round_()
    return light / light.amax((1, 2), keepdim=True).clamp(min=1)


def _equalise(depth: Tensor) -> Tensor:
    """Spread the depths (B, H, W), whole numbers from 0 to DEEPEST, over 0 to 255 by their own histogram.

    level = 255 * (pixels at most so deep, less the shallowest) / (pixels, less the shallowest); one depth
    alone stays as it is.
    """
    places = depth.long().flatten(1)
    counts = torch.zeros(len(depth), DEEPEST + 1, device=depth.device)
    counts.scatter_add_(1, places, torch.ones_like(places, dtype=counts.dtype))
    upto = counts.cumsum(1)
    least = torch.where(counts > 0, counts, torch.inf).gather(1, (counts > 0).float().argmax(1, keepdim=True))
    levels = (upto - least).clamp_(min=0) * 255 / (places.shape[1] - least).clamp(min=1)
    alone = least == places.shape[1]
    levels = torch.where(alone, torch.arange(DEEPEST + 1.0, device=depth.device), levels.round_())
    return levels.gather(1, places).view_as(depth)


def _relief(levels: Tensor) -> Tensor:
    return F.conv2d(_mirrored(levels), torch.tensor(SHADING, device=levels.device).view(1, 1, 3, 3).float())[
        :, 0
    ]


def _box(values: Tensor) -> Tensor:
    """Return the mean over 3x3 pixels, borders mirrored."""
    padded = _mirrored(values)[:, 0]
    rows = padded[:, :-2] + padded[:, 1:-1] + padded[:, 2:]
    return (rows[..., :-2] + rows[..., 1:-1] + rows[..., 2:]) / 9


def _mirrored(values: Tensor) -> Tensor:
    return F.pad(values[:, None], (1, 1, 1, 1), mode="reflect")
