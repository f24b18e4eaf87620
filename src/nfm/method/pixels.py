"""Pixel operations on batches of images in [0, 1], each with a strength of its own, on any device.

images: float32 [n, channels, height, width]; strength: float32 [n].
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from nfm.errors import ShapeError

LEVELS = 256  # of a pixel of eight bits
ROUNDING = 1e-5  # what resizing or undoing a normalisation in float32 may leave outside [0, 1]


def check_pixels(x: Any, purpose: str, *, images: bool = True) -> Tensor:
    """Return `x` if it holds pixels in [0, 1], up to rounding; with `images`, [n, channels, height, width]."""
    if not isinstance(x, Tensor) or not x.is_floating_point() or (images and x.ndim != 4) or not x.numel():
        told = f"{x.dtype} {tuple(x.shape)}" if isinstance(x, Tensor) else type(x).__name__
        shape = "one batch of images [n, channels, height, width]" if images else "one floating-point batch"
        raise ShapeError(f"{purpose}: expected {shape}, got {told}")
    low, high = (float(end) for end in x.detach().aminmax())
    if not (low >= -ROUNDING and high <= 1 + ROUNDING):
        raise ShapeError(
            f"{purpose}: expected pixels in [0, 1], got values from {low:.7g} to {high:.7g}; normalise inside the "
            "network, in its first layer"
        )
    return x if low >= 0 and high <= 1 else x.clamp(0, 1)


def autocontrast(images: Tensor, strength: Tensor) -> Tensor:
    """Stretch each channel from 0 to 1; a channel of one value stays as it is."""
    low, high = images.amin((2, 3), keepdim=True), images.amax((2, 3), keepdim=True)
    span = high - low
    return torch.where(span > 0, (images - low) / span.clamp_min(1e-12), images)


def equalize(images: Tensor, strength: Tensor) -> Tensor:
    """Give each pixel the share of pixels that are darker, channel by channel, so that values spread evenly."""
    value = (images.flatten(2) * (LEVELS - 1)).round().long()
    channel = torch.arange(value.shape[0] * value.shape[1], device=value.device).view(*value.shape[:2], 1)
    counts = torch.bincount((value + LEVELS * channel).flatten(), minlength=LEVELS * channel.numel())
    counts = counts.view(*value.shape[:2], LEVELS).to(images.dtype)
    darker = counts.cumsum(2) - counts
    brightest = darker.gather(2, value.amax(2, keepdim=True))
    spread = (darker / brightest.clamp_min(1)).gather(2, value)
    return torch.where(brightest > 0, spread, images.flatten(2)).view_as(images)


def posterize(images: Tensor, strength: Tensor) -> Tensor:
    """Keep the upper `strength` bits of eight."""
    width = 2 ** (8 - _against(strength))
    value = (images * (LEVELS - 1)).round()
    return (value / width).floor() * width / (LEVELS - 1)


def solarize(images: Tensor, strength: Tensor) -> Tensor:
    """Invert the pixels of at least `strength`, from 0 to 256."""
    return torch.where(images * (LEVELS - 1) < _against(strength), images, 1 - images)


def rotate(images: Tensor, strength: Tensor) -> Tensor:
    """Turn about the middle by `strength` degrees."""
    cosine, sine = strength.deg2rad().cos(), strength.deg2rad().sin()
    return _warp(images, xx=cosine, xy=-sine, yx=sine, yy=cosine)


def shear_x(images: Tensor, strength: Tensor) -> Tensor:
    """Move each row by `strength` times its distance from the top."""
    return _warp(images, xy=strength, x1=strength * images.shape[2] / 2)


def shear_y(images: Tensor, strength: Tensor) -> Tensor:
    """Move each column by `strength` times its distance from the left."""
    return _warp(images, yx=strength, y1=strength * images.shape[3] / 2)


def translate_x(images: Tensor, strength: Tensor) -> Tensor:
    """Move by `strength` pixels."""
    return _warp(images, x1=strength)


def translate_y(images: Tensor, strength: Tensor) -> Tensor:
    """Move by `strength` pixels."""
    return _warp(images, y1=strength)


def _against(strength: Tensor) -> Tensor:
    return strength[:, None, None, None]


def _warp(images: Tensor, **entries: Tensor) -> Tensor:
    """Return images whose pixel (x, y) is the source's at matrix @ (x, y, 1), between pixels; black outside.

    Coordinates count pixels from the middle of the image; entries (xx, xy, x1, yx, yy, y1) not given are those of
    the identity.
    """
    height, width = images.shape[2:]
    theta = torch.eye(2, 3, device=images.device).repeat(len(images), 1, 1)
    for name, value in entries.items():
        theta[:, "xy".index(name[0]), "xy1".index(name[1])] = value
    # The grid's own units: half a width, half a height.
    size = torch.tensor([width, height], device=images.device)
    units = torch.cat([size[None, :] / size[:, None], 2 / size[:, None]], 1)
    grid = F.affine_grid(theta * units, list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, mode="bilinear", padding_mode="zeros", align_corners=False)
