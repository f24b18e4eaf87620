"""CutMix (Yun et al. 2019): paste a box of the partner, `nfm::paste_box(x, numbers, key, ...)`.

Equation 1 of that paper: x~ = M * x + (1 - M) * x[partner], where M is 0 in the box and 1 elsewhere. Its box rule:
the centre is uniform over the image and the sides are those of the image times sqrt(1 - weight), so that the box
has the share 1 - weight of the area; what sticks out over the border is cut off, and then the label weight must be
that of the pixels that were really pasted.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from nfm.core.affine_operator import register_affine
from nfm.core.mixing import Pairing
from nfm.core.operator import drawn_pairing
from nfm.core.receipts import RECEIPTS
from nfm.errors import ShapeError
from nfm.randomness import fold, passing_generator


@dataclass(frozen=True, eq=False)
class Boxes:
    """Rows `top` to `bottom` and columns `left` to `right`, ends excluded: int64 [k], k is 1 or one an example."""

    top: Tensor
    bottom: Tensor
    left: Tensor
    right: Tensor

    @property
    def area(self) -> Tensor:
        """The number of pixels in each box."""
        return (self.bottom - self.top) * (self.right - self.left)

    def mask(self, height: int, width: int) -> Tensor:
        """Return where the boxes are: bool [k, 1, height, width]."""
        rows, columns = torch.arange(height), torch.arange(width)
        in_rows = (rows >= self.top[:, None]) & (rows < self.bottom[:, None])
        in_columns = (columns >= self.left[:, None]) & (columns < self.right[:, None])
        return in_rows[:, None, :, None] & in_columns[:, None, None, :]


def place_boxes(weight: Tensor, centre: Tensor, height: int, width: int) -> Boxes:
    """Return boxes of the share 1 - weight [k] around `centre` [k, 2], in units of the image, cut at its border."""
    # In numpy: most often k is 1, and then a call of torch's takes ten times as long.
    share, size = np.sqrt(np.clip(1 - weight.numpy(), 0, 1))[:, None], np.array([height, width])
    edges = [(centre.numpy() + sign * share / 2) * size for sign in (-1, 1)]
    first, last = (torch.from_numpy(np.clip(np.rint(edge).astype(np.int64), 0, size)) for edge in edges)
    return Boxes(first[:, 0], last[:, 0], first[:, 1], last[:, 1])


def boxes_of(key: int, shape: Sequence[int], numbers: Tensor, *, per_sample: bool) -> tuple[Pairing, Boxes]:
    """Return the boxes of a batch [n, channels, height, width], and its pairing with the true weights."""
    weight, alpha, beta, _, _ = numbers.tolist()
    pairing, boxes = drawn_boxes(key, tuple(shape), weight, alpha, beta, per_sample=per_sample)
    return pairing.copy(), boxes


@functools.lru_cache(maxsize=4)  # as the pairing: the operator, its gradient and the loss ask for the same
def drawn_boxes(
    key: int, shape: tuple[int, ...], weight: float, alpha: float, beta: float, *, per_sample: bool
) -> tuple[Pairing, Boxes]:
    """Return what `boxes_of` does, shared by all who ask: to be read only."""
    size, _, height, width = shape
    wanted = drawn_pairing(key, size, weight, alpha, beta, per_sample=per_sample, dominant=False)
    count = size if wanted.per_sample else 1
    centre = torch.from_numpy(passing_generator(fold(key, "centre")).random((count, 2)))
    boxes = place_boxes(wanted.weight.reshape(-1), centre, height, width)
    own = 1 - boxes.area.double() / (height * width)
    return Pairing(wanted.partner, own if wanted.per_sample else own[0]), boxes


def check_image(x: Tensor) -> None:
    """Refuse a feature without rows and columns."""
    if x.ndim != 4:
        raise ShapeError(
            f"expected images or feature maps [n, channels, height, width] to cut boxes from, got shape "
            f"{tuple(x.shape)}; choose a site before the rows and columns are gone"
        )


def _forward(x: Tensor, numbers: Tensor, key: Tensor, per_sample: bool, stream: int) -> Tensor:
    if stream == 0:
        RECEIPTS.stamp(key.tolist()[2], x.shape)
    pairing, boxes = _meant_for(x, numbers, key, per_sample=per_sample)
    return _moved(x, pairing.partner, boxes)


def _transposed(x: Tensor, numbers: Tensor, key: Tensor, per_sample: bool, stream: int) -> Tensor:
    """Return the gradient of x for the gradient of the output: what was pasted goes back to where it was cut."""
    pairing, boxes = _meant_for(x, numbers, key, per_sample=per_sample)
    if not pairing.per_sample:
        return _moved(x, pairing.inverse, boxes)
    mask = boxes.mask(*x.shape[2:]).to(x.device)
    return x.masked_fill(mask, 0) + x.masked_fill(~mask, 0)[pairing.inverse.to(x.device)]


def _meant_for(x: Tensor, numbers: Tensor, key: Tensor, *, per_sample: bool) -> tuple[Pairing, Boxes]:
    weight, alpha, beta, _, _ = numbers.tolist()
    return drawn_boxes(key.tolist()[0], tuple(x.shape), weight, alpha, beta, per_sample=per_sample)


def _moved(x: Tensor, source: Tensor, boxes: Boxes) -> Tensor:
    """Return `x` with its boxes taken from x[source]."""
    source = source.to(x.device)
    if len(boxes.top) == len(x) > 1:
        return torch.where(boxes.mask(*x.shape[2:]).to(x.device), x[source], x)
    top, bottom, left, right = (int(edge) for edge in (boxes.top, boxes.bottom, boxes.left, boxes.right))
    moved = x.clone()
    pasted = x[:, :, top:bottom, left:right].index_select(0, source)  # a third of the time of [source]
    moved[:, :, top:bottom, left:right].copy_(pasted)
    return moved


paste_box_op, paste_box_transposed_op, run_paste_box = register_affine(
    "paste_box", _forward, _transposed, settings="bool per_sample, int stream"
)
