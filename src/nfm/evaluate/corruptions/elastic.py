"""Elastic transform: a random affine map, then a smooth random field of displacements."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from nfm.evaluate.corruptions.planes import reflect
from nfm.evaluate.corruptions.smooth import smooth_noise
from nfm.evaluate.keyed import Stream

# Both warps interpolate in float32, where a flat area may come out a millionth too dark: not a level less.
HAIR = 2.0**-10


def elastic_transform(pixels: Tensor, stream: Stream, strength: float, sigma: float, jitter: float) -> Tensor:
    """Move three points by up to `jitter` pixels, then all by `strength` times noise smoothed by `sigma`."""
    image = _warp(pixels.float(), *_affine(pixels, stream, jitter), half_pixel=False)
    if strength:
        image = _warp(image, *_displaced(pixels, stream, strength, sigma), half_pixel=True)
    return (image + HAIR).clamp_(0, 255).to(torch.uint8)


def _grid(pixels: Tensor) -> tuple[Tensor, Tensor]:
    """Return the row (H, 1) and the column (W,) of each pixel, float64."""
    height, width = pixels.shape[2:]
    rows, columns = (
        torch.arange(size, dtype=torch.float64, device=pixels.device) for size in (height, width)
    )
    return rows[:, None], columns


def _affine(pixels: Tensor, stream: Stream, jitter: float) -> tuple[Tensor, Tensor]:
    """Return where (row, column) each pixel is read, (B, H, W) each.

    The map takes three corners p of the central square to p + e with e uniform on [-jitter, jitter]; pixels are
    read through its inverse.
    """
    height, width = pixels.shape[2:]
    side = min(height, width) // 3
    middle = height // 2, width // 2
    corners = torch.tensor([[1, 1], [1, -1], [-1, -1]], dtype=torch.float64, device=pixels.device) * side
    corners += torch.tensor(middle, device=pixels.device)
    moved = corners + (stream.uniform((3, 2), purpose=1).double() * 2 - 1) * jitter  # (B, 3, 2)
    rows, columns = _grid(pixels)
    along, across = _coordinates(moved, rows, columns)
    origin, first, second = corners[0], corners[1] - corners[0], corners[2] - corners[0]
    return (
        origin[0] + first[0] * along + second[0] * across,
        origin[1] + first[1] * along + second[1] * across,
    )


def _coordinates(moved: Tensor, rows: Tensor, columns: Tensor) -> tuple[Tensor, Tensor]:
    """Return each pixel in the frame of three points (B, 3, 2): the first, and the ways to the others."""
    points = moved[..., None, None]
    first, second = points[:, 1] - points[:, 0], points[:, 2] - points[:, 0]
    down, right = rows - points[:, 0, 0], columns - points[:, 0, 1]
    area = first[:, 0] * second[:, 1] - first[:, 1] * second[:, 0]
    return (
        (down * second[:, 1] - right * second[:, 0]) / area,
        (right * first[:, 0] - down * first[:, 1]) / area,
    )


def _displaced(pixels: Tensor, stream: Stream, strength: float, sigma: float) -> tuple[Tensor, Tensor]:
    """Return where (row, column) each pixel is read after a smooth displacement."""
    batch, _, height, width = pixels.shape
    field = stream.uniform((2, height, width), purpose=2).mul_(2).sub_(1).flatten(0, 1)
    shift = smooth_noise(field, sigma, truncate=3.0, border=reflect).view(batch, 2, height, width) * strength
    rows, columns = _grid(pixels)
    return rows + shift[:, 0], columns + shift[:, 1]


def _warp(image: Tensor, rows: Tensor, columns: Tensor, *, half_pixel: bool) -> Tensor:
    """Read float32 (B, C, H, W) at places (B, H, W) between pixels, bilinear.

    half_pixel: beyond the border mirror at the outer edge of the last pixel, else at its centre.
    """
    height, width = image.shape[2:]
    if half_pixel:
        places = [(2 * columns + 1) / width - 1, (2 * rows + 1) / height - 1]
    else:
        places = [2 * columns / max(width - 1, 1) - 1, 2 * rows / max(height - 1, 1) - 1]
    grid = torch.stack([place.float() for place in places], dim=-1)
    return F.grid_sample(image, grid, padding_mode="reflection", align_corners=not half_pixel)
