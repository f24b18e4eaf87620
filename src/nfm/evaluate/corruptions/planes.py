"""Images as planes (H, W, N), every plane of the batch side by side: a shift in height or width moves whole
runs of memory, and one operation serves all images. And what is read beyond a border.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Border = Callable[[Tensor, int], Tensor]


def to_planes(pixels: Tensor) -> Tensor:
    """Return (B, C, H, W) as (H, W, B * C)."""
    return pixels.flatten(0, 1).permute(1, 2, 0).contiguous()


def from_planes(planes: Tensor, like: Tensor) -> Tensor:
    """Return (H, W, B * C) in the shape of `like`, (B, C, H, W)."""
    return planes.permute(2, 0, 1).reshape(like.shape)


def to_uint8(values: Tensor) -> Tensor:
    """Truncate values from 0 to 255; by way of int32, which is twice as fast as at once."""
    return values.to(torch.int32).to(torch.uint8)


def to_levels(shares: Tensor) -> Tensor:
    """Return [0, 1] values as uint8, clipped and truncated (not rounded), as the published files were."""
    return to_uint8(shares.clamp(0, 1).mul_(255))


def extend(values: Tensor, radius: int, axis: int, border: Border) -> Tensor:
    """Return `values` with `radius` more places on both sides of `axis`, filled by `border`."""
    places = torch.arange(-radius, values.shape[axis] + radius, device=values.device)
    return values.index_select(axis, border(places, values.shape[axis]))


def edge(places: Tensor, size: int) -> Tensor:
    """Return where each place is read: beyond the border, the last pixel.

    >>> edge(torch.arange(-2, 5), 3).tolist()
    [0, 0, 0, 1, 2, 2, 2]
    """
    return places.clamp(0, size - 1)


def mirror(places: Tensor, size: int) -> Tensor:
    """Return where each place is read: mirrored at the centre of the last pixel (OpenCV's "reflect 101").

    >>> mirror(torch.arange(-2, 5), 3).tolist()
    [2, 1, 0, 1, 2, 1, 0]
    """
    if size == 1:
        return torch.zeros_like(places)
    folded = places.remainder(2 * (size - 1))
    return torch.minimum(folded, 2 * (size - 1) - folded)


def reflect(places: Tensor, size: int) -> Tensor:
    """Return where each place is read: mirrored at the outer edge of the last pixel (SciPy's "reflect").

    >>> reflect(torch.arange(-2, 5), 3).tolist()
    [1, 0, 0, 1, 2, 2, 1]
    """
    folded = places.remainder(2 * size)
    return torch.minimum(folded, 2 * size - 1 - folded)
