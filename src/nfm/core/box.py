"""CutMix (Yun et al. 2019): paste a box of the partner, `nfm::paste_box(x, numbers, key, ...)`.

Equation 1 of that paper: x~ = M * x + (1 - M) * x[partner], where M is 0 in the box and 1 elsewhere. Its box rule:
the centre is uniform over the image and the sides are those of the image times sqrt(1 - weight), so that the box
has the share 1 - weight of the area; what sticks out over the border is cut off, and then the label weight must be
that of the pixels that were really pasted.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from nfm.core import compiled
from nfm.core.affine_operator import register_affine
from nfm.core.arguments import Arguments
from nfm.core.kernel import kernel_in_use
from nfm.core.lasting import remembered
from nfm.core.mixing import Pairing
from nfm.core.operator import REMEMBERED, drawn_pairing
from nfm.errors import ShapeError
from nfm.randomness import fold, passing_generator


class Box(NamedTuple):
    """Rows `top` to `bottom` and columns `left` to `right` of an image, ends excluded."""

    top: int
    bottom: int
    left: int
    right: int

    @property
    def area(self) -> int:
        """The number of pixels in the box."""
        return (self.bottom - self.top) * (self.right - self.left)


def place_box(weight: float, centre: Sequence[float], height: int, width: int) -> Box:
    """Return the box of the share 1 - weight around `centre`, in units of the image, cut at its border."""
    half = math.sqrt(1 - weight) / 2  # in Python's numbers: for one box any library's call takes longer

    def edges(middle: float, size: int) -> tuple[int, int]:
        return max(round((middle - half) * size), 0), min(round((middle + half) * size), size)

    row, column = centre  # each from 0 to 1: no edge lies beyond the far border
    return Box(*edges(row, height), *edges(column, width))


def mask_of(boxes: Sequence[Box], height: int, width: int) -> Tensor:
    """Return where the boxes are: bool [k, 1, height, width]."""
    top, bottom, left, right = torch.tensor(boxes).T[:, :, None]
    rows, columns = torch.arange(height), torch.arange(width)
    in_rows, in_columns = (rows >= top) & (rows < bottom), (columns >= left) & (columns < right)
    return in_rows[:, None, :, None] & in_columns[:, None, None, :]


def boxes_of(
    arguments: Arguments, shape: Sequence[int], *, per_sample: bool
) -> tuple[Pairing, tuple[Box, ...]]:
    """Return a batch's pairing with the true weights, and its boxes: one, or one an example."""
    return drawn_boxes(arguments.keys.pairing, tuple(shape), *arguments.numbers[:3], per_sample=per_sample)


@remembered(REMEMBERED)  # as the pairing: the operator, its gradient and the loss ask for the same
def drawn_boxes(
    key: int, shape: tuple[int, ...], weight: float, alpha: float, beta: float, *, per_sample: bool
) -> tuple[Pairing, tuple[Box, ...]]:
    """Return what `boxes_of` does."""
    size, _, height, width = shape
    wanted = drawn_pairing(key, size, weight, alpha, beta, per_sample=per_sample, dominant=False)
    pixels = max(height * width, 1)
    if wanted.number is not None:
        box = place_box(wanted.number, one_centre(key), height, width)
        return wanted.weighted(1 - box.area / pixels), (box,)
    pairs = zip(wanted.weight.tolist(), _centres(key, size), strict=True)
    boxes = tuple(place_box(*pair, height, width) for pair in pairs)
    own = [1 - box.area / pixels for box in boxes]
    return Pairing(wanted.partner, torch.tensor(own, dtype=torch.float64, device="cpu")), boxes


def _centres(key: int, count: int) -> list[list[float]]:
    centres: list[list[float]] = passing_generator(fold(key, "centre")).random((count, 2)).tolist()
    return centres


@functools.lru_cache(maxsize=REMEMBERED)
def one_centre(key: int) -> tuple[float, ...]:
    """Return where the middle of a batch's one box is, in units of the image."""
    return tuple(*_centres(key, 1))


def check_image(x: Tensor) -> None:
    """Refuse a feature without rows and columns."""
    if x.ndim != 4:
        raise ShapeError(
            f"expected images or feature maps [n, channels, height, width] to cut boxes from, got shape "
            f"{tuple(x.shape)}; choose a site before the rows and columns are gone"
        )


def _forward(x: Tensor, arguments: Arguments, per_sample: bool, stream: int) -> Tensor:
    if stream == 0:
        arguments.receipt.stamp(x.shape)
    pairing, boxes = boxes_of(arguments, x.shape, per_sample=per_sample)
    return _moved(x, pairing.partner, boxes)


def _transposed(x: Tensor, arguments: Arguments, per_sample: bool, stream: int) -> Tensor:
    """Return the gradient of x for the gradient of the output: what was pasted goes back to where it was cut."""
    pairing, boxes = boxes_of(arguments, x.shape, per_sample=per_sample)
    if not pairing.per_sample:
        return _moved(x, pairing.inverse, boxes)
    mask = mask_of(boxes, *x.shape[2:]).to(x.device)
    return x.masked_fill(mask, 0) + x.masked_fill(~mask, 0)[pairing.inverse.to(x.device)]


def _moved(x: Tensor, source: Tensor, boxes: Sequence[Box]) -> Tensor:
    """Return `x` with its boxes taken from x[source]."""
    source = source.to(x.device)
    if not x.numel():
        return x.clone()
    if len(boxes) == len(x) > 1:
        return torch.where(mask_of(boxes, *x.shape[2:]).to(x.device), x[source], x)
    (box,) = boxes
    if kernel_in_use() == "c" and compiled.pastes(x):
        return compiled.paste_box(x, source, box)
    top, bottom, left, right = box
    moved = x.clone()
    moved[:, :, top:bottom, left:right] = x[:, :, top:bottom, left:right][source]
    return moved


paste_box_op, paste_box_transposed_op, run_paste_box = register_affine(
    "paste_box", _forward, _transposed, settings="bool per_sample, int stream"
)
