"""Pixel operations on batches of uint8 images, each with its own strength, by Pillow's integer rules.

images: uint8 (n,C,H,W) with C 1 or 3; strength: float64 (n,).
"""

from __future__ import annotations

import torch
from torch import Tensor

FILL = 128  # the grey that shows where an image was moved away


def affine(images: Tensor, matrix: Tensor) -> Tensor:
    """Return images whose pixel (x,y) is the source's at matrix @ (x,y,1); matrix: float64 (n,2,3).

    Coordinates are of pixel centres, the nearest source pixel is taken, outside is FILL.
    """
    n, channels, height, width = images.shape
    y, x = torch.meshgrid(torch.arange(height) + 0.5, torch.arange(width) + 0.5, indexing="ij")
    grid = torch.stack([x, y, torch.ones_like(x)]).double().flatten(1)
    source = (matrix @ grid).floor().long()  # (n,2,H*W)
    inside = (source >= 0) & (source < torch.tensor([[width], [height]]))
    column, row = source[:, 0].clamp(0, width - 1), source[:, 1].clamp(0, height - 1)
    place = (row * width + column)[:, None].expand(n, channels, height * width)
    moved = images.flatten(2).gather(2, place)
    return moved.where(inside.all(1, keepdim=True), FILL).view_as(images).to(torch.uint8)


def _matrix(n: int, **entries: Tensor) -> Tensor:
    """Return identity maps with some entries (xx, xy, x1, yx, yy, y1) replaced."""
    matrix = torch.eye(2, 3, dtype=torch.float64).repeat(n, 1, 1)
    for name, value in entries.items():
        matrix[:, "xy".index(name[0]), "xy1".index(name[1])] = value
    return matrix


def shear_x(images: Tensor, strength: Tensor) -> Tensor:
    return affine(images, _matrix(len(images), xy=strength))


def shear_y(images: Tensor, strength: Tensor) -> Tensor:
    return affine(images, _matrix(len(images), yx=strength))


def translate_x(images: Tensor, strength: Tensor) -> Tensor:
    """Move by whole pixels, `strength` rounded towards zero."""
    return affine(images, _matrix(len(images), x1=strength.trunc()))


def translate_y(images: Tensor, strength: Tensor) -> Tensor:
    """Move by whole pixels, `strength` rounded towards zero."""
    return affine(images, _matrix(len(images), y1=strength.trunc()))


def rotate(images: Tensor, strength: Tensor) -> Tensor:
    """Turn about the middle by `strength` degrees, against the clock."""
    cosine, sine = strength.deg2rad().cos(), strength.deg2rad().sin()
    x, y = images.shape[3] / 2, images.shape[2] / 2
    entries = {"xx": cosine, "xy": -sine, "yx": sine, "yy": cosine}
    shift = {"x1": x - cosine * x + sine * y, "y1": y - sine * x - cosine * y}
    return affine(images, _matrix(len(images), **entries, **shift))


def invert(images: Tensor, strength: Tensor) -> Tensor:
    return 255 - images


def solarize(images: Tensor, strength: Tensor) -> Tensor:
    """Invert the pixels of at least `strength`."""
    return torch.where(images < strength[:, None, None, None], images, 255 - images)


def posterize(images: Tensor, strength: Tensor) -> Tensor:
    """Keep the upper `strength` bits."""
    mask = 256 - 2 ** (8 - strength)
    return images & mask.to(torch.uint8)[:, None, None, None]


def auto_contrast(images: Tensor, strength: Tensor) -> Tensor:
    """Stretch each channel so that its darkest value is 0 and its brightest 255."""
    values = images.flatten(2).double()
    low, high = values.amin(2, keepdim=True), values.amax(2, keepdim=True)
    scale = torch.full_like(low, 255) / (high - low).clamp(min=1)  # 255 / x would multiply by 1/x
    stretched = (values * scale - low * scale).clamp(0, 255)
    return torch.where(high > low, stretched, values).to(torch.uint8).view_as(images)


def equalize(images: Tensor, strength: Tensor) -> Tensor:
    """Spread each channel's histogram evenly."""
    values = images.flatten(2).long()
    counts = torch.zeros(*values.shape[:2], 256, dtype=torch.int64).scatter_add_(
        2, values, torch.ones_like(values)
    )
    last = values.amax(2, keepdim=True)
    step = (counts.sum(2, keepdim=True) - counts.gather(2, last)) // 255
    before = counts.cumsum(2) - counts
    table = ((before + step // 2) // step.clamp(min=1)).clamp(max=255)
    table = torch.where(step > 0, table, torch.arange(256))
    return table.gather(2, values).to(torch.uint8).view_as(images)


def grey(images: Tensor) -> Tensor:
    """Return the luma (n,1,H,W) by ITU-R 601-2, in Pillow's 16-bit integers."""
    if images.shape[1] == 1:
        return images
    weights = torch.tensor([19595, 38470, 7471])[:, None, None]
    return (((images.long() * weights).sum(1, keepdim=True) + 0x8000) >> 16).to(torch.uint8)


def blend(degenerate: Tensor, images: Tensor, strength: Tensor) -> Tensor:
    """Return degenerate + strength * (images - degenerate), cut off at 0 and 255."""
    base = degenerate.float()
    factor = strength.float()[:, None, None, None]
    return (base + factor * (images.float() - base)).clamp(0, 255).to(torch.uint8)


def brightness(images: Tensor, strength: Tensor) -> Tensor:
    return blend(torch.zeros_like(images), images, strength)


def color(images: Tensor, strength: Tensor) -> Tensor:
    return blend(grey(images), images, strength)


def contrast(images: Tensor, strength: Tensor) -> Tensor:
    mean = (grey(images).double().mean((1, 2, 3)) + 0.5).floor()
    return blend(mean[:, None, None, None], images, strength)


def sharpness(images: Tensor, strength: Tensor) -> Tensor:
    """Move away from (or towards) the image smoothed by a 3x3 kernel; the outermost pixels stay."""
    smooth = images.clone()
    kernel = torch.tensor([[1.0, 1, 1], [1, 5, 1], [1, 1, 1]]) / 13
    flat = images.float().flatten(0, 1)[:, None]
    inner = torch.nn.functional.conv2d(flat, kernel[None, None])
    smooth[:, :, 1:-1, 1:-1] = (inner + 0.5).clamp(0, 255).to(torch.uint8).view_as(smooth[:, :, 1:-1, 1:-1])
    return blend(smooth, images, strength)
