"""Edges by Canny's method (Canny 1986) on a batch: 3x3 Sobel, thinning along the gradient, two thresholds."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

SLOPES = math.tan(math.radians(22.5)), math.tan(math.radians(67.5))  # between the four directions


def find_edges(levels: Tensor, low: int, high: int) -> Tensor:
    """Return the edges of uint8 images (B, H, W): bool.

    A pixel is a candidate where |gx| + |gy| > `low` is largest across the edge; it is an edge if it is linked
    by candidates to one above `high`.
    """
    across, down = _sobel(levels)
    size = across.abs() + down.abs()
    candidates = (size > low) & _is_ridge(size, across, down)
    return _linked(candidates & (size > high), candidates)


def _sobel(levels: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradients along width and height, borders repeated: int32 (B, H, W)."""
    padded = F.pad(levels.float()[:, None], (1, 1, 1, 1), mode="replicate")[:, 0].to(torch.int32)
    rows = padded[:, :-2] + 2 * padded[:, 1:-1] + padded[:, 2:]
    columns = padded[..., :-2] + 2 * padded[..., 1:-1] + padded[..., 2:]
    return rows[..., 2:] - rows[..., :-2], columns[:, 2:] - columns[:, :-2]


def _is_ridge(size: Tensor, across: Tensor, down: Tensor) -> Tensor:
    """Tell where `size` is not below its neighbours in the direction of the gradient (one strictly)."""
    padded = F.pad(size, (1, 1, 1, 1))

    def near(row: int, column: int) -> Tensor:
        return padded[:, 1 + row : 1 + row + size.shape[1], 1 + column : 1 + column + size.shape[2]]

    flat = down.abs() < SLOPES[0] * across.abs()
    steep = down.abs() > SLOPES[1] * across.abs()
    same = (across ^ down) >= 0  # the gradient points down right or up left
    falling = (size > near(-1, -1)) & (size > near(1, 1))
    rising = (size > near(-1, 1)) & (size > near(1, -1))
    slanted = (falling & same) | (rising & ~same)
    level = (size > near(0, -1)) & (size >= near(0, 1))
    upright = (size > near(-1, 0)) & (size >= near(1, 0))
    return (level & flat) | (upright & steep) | (slanted & ~flat & ~steep)


def _linked(seeds: Tensor, candidates: Tensor) -> Tensor:
    """Return the candidates that are joined to a seed by neighbouring candidates, diagonals included."""
    grown = seeds
    while True:
        padded = F.pad(grown, (1, 1, 1, 1))
        rows = padded[:, :-2] | padded[:, 1:-1] | padded[:, 2:]
        wider = (rows[..., :-2] | rows[..., 1:-1] | rows[..., 2:]) & candidates
        if torch.equal(wider, grown):
            return grown
        grown = wider


def distance_to(edges: Tensor, limit: int) -> Tensor:
    """Return the Euclidean distance of each pixel to the nearest edge, at most `limit`: float32 (B, H, W).

    The squared distance is a minimum over rows of a minimum over columns, both by shifts below `limit`.
    """
    squared = (~edges).to(torch.int16) * (limit * limit)
    for axis in (1, 2):
        squared = _spread(squared, axis, limit)
    return squared.float().sqrt_()


def _spread(squared: Tensor, axis: int, limit: int) -> Tensor:
    """Return min over shifts s along `axis` of squared(place + s) + s^2."""
    least, size = squared.clone(), squared.shape[axis]
    for shift in range(1, min(limit, size)):
        farther = squared + shift * shift
        ahead, behind = farther.narrow(axis, shift, size - shift), farther.narrow(axis, 0, size - shift)
        for target, source in ((0, ahead), (shift, behind)):
            view = least.narrow(axis, target, size - shift)
            torch.minimum(view, source, out=view)
    return least
