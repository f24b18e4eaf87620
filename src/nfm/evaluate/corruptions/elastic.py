"""Elastic transform: a random affine map, then a smooth random field of displacements."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from nfm.evaluate.corruptions.planes import reflect, to_uint8
from nfm.evaluate.corruptions.smooth import smooth_noise
from nfm.evaluate.keyed import Stream

# Both warps interpolate in float32, where a flat area may come out a millionth too dark: not a level less.
HAIR = 2.0**-10


def elastic_transform(pixels: Tensor, stream: Stream, strength: float, sigma: float, jitter: float) -> Tensor:
    """Move three points by up to `jitter` pixels, then all by `strength` times noise smoothed by `sigma`."""
    image = _warp(pixels.float(), _affine(pixels, stream, jitter), half_pixel=False)
    if strength:
        image = _warp(image, _displaced(pixels, stream, strength, sigma), half_pixel=True)
    return to_uint8(image.add_(HAIR).clamp_(0, 255))


def _grid(pixels: Tensor) -> tuple[Tensor, Tensor]:
    """Return the row (H, 1) and the column (W,) of each pixel."""
    height, width = pixels.shape[2:]
    return torch.arange(height, device=pixels.device)[:, None], torch.arange(width, device=pixels.device)


def _affine(pixels: Tensor, stream: Stream, jitter: float) -> tuple[Tensor, Tensor]:
    """Return where (row, column) each pixel is read: float32 (B, H, W) each.

    The map takes three corners p of the central square to p + e with e uniform on [-jitter, jitter]; pixels are
    read through its inverse, (row, column) = corner + (along, across) @ sides, where `along` and `across` are
    the coordinates of the pixel in the frame of the moved corners.
    """
    height, width = pixels.shape[2:]
    corners = torch.tensor([[1, 1], [1, -1], [-1, -1]], dtype=torch.float64, device=pixels.device)
    corners = corners * (min(height, width) // 3) + torch.tensor(
        [height // 2, width // 2], device=pixels.device
    )
    moved = corners + (stream.uniform((3, 2), purpose=1).double() * 2 - 1) * jitter  # (B, 3, 2)
    first, second = (moved[:, 1:] - moved[:, :1]).unbind(1)
    area = first[:, 0] * second[:, 1] - first[:, 1] * second[:, 0]
    inverse = torch.stack([second[:, 1], -second[:, 0], -first[:, 1], first[:, 0]]) / area
    sides = corners[1:] - corners[0]
    rows, columns = _grid(pixels)
    places = []
    for axis in (0, 1):
        down, right = (inverse[i] * sides[0, axis] + inverse[2 + i] * sides[1, axis] for i in (0, 1))
        start = corners[0, axis] - down * moved[:, 0, 0] - right * moved[:, 0, 1]
        by_row = down[:, None, None] * rows + start[:, None, None]
        places.append(by_row.float() + (right[:, None, None] * columns).float())
    return places[0], places[1]


def _displaced(pixels: Tensor, stream: Stream, strength: float, sigma: float) -> tuple[Tensor, Tensor]:
    """Return where (row, column) each pixel is read after a smooth displacement: float32 (B, H, W) each."""
    batch, _, height, width = pixels.shape
    field = stream.uniform((2, height, width), purpose=2).mul_(2).sub_(1).flatten(0, 1)
    shift = smooth_noise(field, sigma, truncate=3.0, border=reflect).float().mul_(strength)
    down, right = shift.view(batch, 2, height, width).unbind(1)
    rows, columns = _grid(pixels)
    return down + rows, right + columns


def _warp(image: Tensor, places: tuple[Tensor, Tensor], *, half_pixel: bool) -> Tensor:
    """Read float32 (B, C, H, W) at places (row, column) between pixels, bilinear.

    half_pixel: beyond the border mirror at the outer edge of the last pixel, else at its centre.
    """
    sides = image.shape[2:] if half_pixel else [max(side - 1, 1) for side in image.shape[2:]]
    shift = 1 / sides[1] - 1 if half_pixel else -1, 1 / sides[0] - 1 if half_pixel else -1
    down, right = (place.mul_(2 / side) for place, side in zip(places, sides, strict=True))
    grid = torch.stack([right.add_(shift[0]), down.add_(shift[1])], dim=-1)
    return F.grid_sample(image, grid, padding_mode="reflection", align_corners=not half_pixel)
