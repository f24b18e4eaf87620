"""Random crops and flips, each example its own, keyed by (key, example id)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import interpolate

from nfm.data.draws import uniforms
from nfm.data.examples import Augment
from nfm.data.windows import cut_windows
from nfm.errors import ShapeError, UsageError
from nfm.randomness import fold

TRIES = 10  # of RandomResizedCrop before it takes the middle


@dataclass(frozen=True)
class CropFlip:
    """Pad by `pad` pixels, crop back to size at a random place, mirror with probability `flip`.

    The recipe of He et al. 2015 (sec. 4.2) for CIFAR: pad 4 with zeros, flip half of the images.
    """

    pad: int = 4
    flip: float = 0.5
    padding: Literal["zero", "reflect"] = "zero"

    def __post_init__(self) -> None:
        if self.pad < 0 or not 0 <= self.flip <= 1 or self.padding not in ("zero", "reflect"):
            raise UsageError(f"expected pad >= 0, flip from 0 to 1, padding 'zero' or 'reflect'; got {self}")

    def __call__(self, images: Tensor, ids: Tensor, *, key: int) -> Tensor:
        """Return new images (n,C,H,W) of the same shape and dtype."""
        check_images(images)
        pad, size = self.pad, (images.shape[2], images.shape[3])
        draw = uniforms(ids, 3, key=key)
        corners = torch.from_numpy((draw[:, :2] * (2 * pad + 1)).astype(np.int64))
        if self.padding == "zero":
            corners -= pad
        elif pad >= min(size):
            raise ShapeError(f"reflect padding of {pad} needs images larger than that, got {images.shape}")
        else:
            borders = ((0, 0), (0, 0), (pad, pad), (pad, pad))
            images = torch.from_numpy(np.pad(images.numpy(), borders, mode="reflect"))
        return cut_windows(images, corners, size, torch.from_numpy(draw[:, 2] < self.flip))


@dataclass(frozen=True)
class RandomResizedCrop:
    """Cut a random part of the image, scale it to size x size, mirror with probability `flip`.

    The part has an area of `scale` times the whole and a side ratio of `ratio`, both as a range: Inception's
    crop (Szegedy et al. 2014, sec. 6), the training view of ImageNet.
    """

    size: int = 224
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    flip: float = 0.5

    def __post_init__(self) -> None:
        ranges = 0 < self.scale[0] <= self.scale[1] <= 1 and 0 < self.ratio[0] <= self.ratio[1]
        if self.size < 1 or not ranges or not 0 <= self.flip <= 1:
            raise UsageError(
                f"expected size >= 1, rising scale within (0,1] and ratio, flip 0 to 1; got {self}"
            )

    def draws(self, ids: Tensor, *, key: int) -> NDArray[np.float64]:
        """Return the random numbers of each example: four a try, one for the flip."""
        return uniforms(ids, 4 * TRIES + 1, key=key)

    def box(self, width: int, height: int, draw: NDArray[np.float64]) -> tuple[int, int, int, int]:
        """Return (left, top, right, bottom) of an example: its first try that fits, or the middle."""
        tries = draw[: 4 * TRIES].reshape(TRIES, 4)
        area = width * height * (self.scale[0] + (self.scale[1] - self.scale[0]) * tries[:, 0])
        low, high = np.log(self.ratio[0]), np.log(self.ratio[1])
        side_ratio = np.exp(low + (high - low) * tries[:, 1])
        widths, heights = np.rint(np.sqrt(area * side_ratio)), np.rint(np.sqrt(area / side_ratio))
        fits = (widths >= 1) & (widths <= width) & (heights >= 1) & (heights <= height)
        if not fits.any():
            return self._middle(width, height)
        first = int(fits.argmax())
        w, h = int(widths[first]), int(heights[first])
        left, top = int(tries[first, 2] * (width - w + 1)), int(tries[first, 3] * (height - h + 1))
        return left, top, left + w, top + h

    def _middle(self, width: int, height: int) -> tuple[int, int, int, int]:
        """Return the largest box in the middle whose side ratio is allowed."""
        w = min(width, round(height * self.ratio[1]))
        h = min(height, round(width / self.ratio[0]))
        left, top = (width - w) // 2, (height - h) // 2
        return left, top, left + w, top + h

    def cut(self, image: Tensor, draw: NDArray[np.float64]) -> Tensor:
        """Return the random part of one image (C,H,W), scaled and perhaps mirrored."""
        left, top, right, bottom = self.box(image.shape[2], image.shape[1], draw)
        part = image[None, :, top:bottom, left:right]
        scaled = interpolate(part, (self.size, self.size), mode="bilinear", antialias=True)[0]
        return scaled.flip(-1) if draw[-1] < self.flip else scaled

    def __call__(self, images: Tensor, ids: Tensor, *, key: int) -> Tensor:
        """Return new images (n,C,size,size) of the same dtype."""
        check_images(images)
        out = images.new_empty(len(images), images.shape[1], self.size, self.size)
        for target, image, draw in zip(out, images, self.draws(ids, key=key), strict=True):
            target.copy_(self.cut(image, draw))
        return out


@dataclass(frozen=True)
class Chain:
    """Several augmentations one after another, each with draws of its own."""

    steps: tuple[Augment, ...]

    def __call__(self, images: Tensor, ids: Tensor, *, key: int) -> Tensor:
        for place, step in enumerate(self.steps):
            images = step(images, ids, key=fold(key, place))
        return images


def check_images(images: Tensor) -> None:
    """Refuse what has no rows and columns."""
    if images.ndim != 4:
        raise ShapeError(
            f"augmentation needs images (n,C,H,W), got shape {tuple(images.shape)}; use augment=None"
        )
