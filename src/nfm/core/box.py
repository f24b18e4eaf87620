"""CutMix (Yun et al. 2019): paste a box of the partner, `nfm::paste_box(x, numbers, key, ...)`.

Equation 1 of that paper: x~ = M * x + (1 - M) * x[partner], where M is 0 in the box and 1 elsewhere. Its box rule:
the centre is uniform over the image and the sides are those of the image times sqrt(1 - weight), so that the box
has the share 1 - weight of the area; what sticks out over the border is cut off, and then the label weight must be
that of the pixels that were really pasted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from nfm.core.affine_operator import register_affine
from nfm.core.mixing import Pairing
from nfm.core.operator import pairing_of
from nfm.core.receipts import RECEIPTS
from nfm.errors import ShapeError
from nfm.randomness import fold, numpy_generator


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
    share = (1 - weight).clamp(0, 1).sqrt()[:, None]
    size = torch.tensor([height, width], dtype=torch.float64)
    low, high = ((centre + sign * share / 2) * size for sign in (-1, 1))
    first, last = (
        edge.round().long().clamp(min=torch.zeros(2).long(), max=size.long()) for edge in (low, high)
    )
    return Boxes(first[:, 0], last[:, 0], first[:, 1], last[:, 1])


def boxes_of(key: int, shape: Sequence[int], numbers: Tensor, *, per_sample: bool) -> tuple[Pairing, Boxes]:
    """Return the boxes of a batch [n, channels, height, width], and its pairing with the true weights."""
    size, _, height, width = shape
    wanted = pairing_of(key, size, numbers, per_sample=per_sample, dominant=False)
    count = size if wanted.per_sample else 1
    centre = torch.from_numpy(numpy_generator(fold(key, "centre")).random((count, 2)))
    boxes = place_boxes(wanted.weight.reshape(-1), centre, height, width)
    weight = 1 - boxes.area.double() / (height * width)
    return Pairing(wanted.partner, weight if wanted.per_sample else weight[0]), boxes


def check_image(x: Tensor) -> None:
    """Refuse a feature without rows and columns."""
    if x.ndim != 4:
        raise ShapeError(
            f"expected images or feature maps [n, channels, height, width] to cut boxes from, got shape "
            f"{tuple(x.shape)}; choose a site before the rows and columns are gone"
        )


def _forward(x: Tensor, numbers: Tensor, key: Tensor, per_sample: bool, stream: int) -> Tensor:
    pairing_key, _, serial = key.tolist()
    if stream == 0:
        RECEIPTS.stamp(serial, x.shape)
    pairing, boxes = boxes_of(pairing_key, x.shape, numbers, per_sample=per_sample)
    return _moved(x, pairing.partner, boxes)


def _transposed(x: Tensor, numbers: Tensor, key: Tensor, per_sample: bool, stream: int) -> Tensor:
    """Return the gradient of x for the gradient of the output: what was pasted goes back to where it was cut."""
    pairing, boxes = boxes_of(int(key[0]), x.shape, numbers, per_sample=per_sample)
    inverse = torch.argsort(pairing.partner)
    if not pairing.per_sample:
        return _moved(x, inverse, boxes)
    mask = boxes.mask(*x.shape[2:]).to(x.device)
    return x.masked_fill(mask, 0) + x.masked_fill(~mask, 0)[inverse.to(x.device)]


def _moved(x: Tensor, source: Tensor, boxes: Boxes) -> Tensor:
    """Return `x` with its boxes taken from x[source]."""
    source = source.to(x.device)
    if len(boxes.top) == len(x) > 1:
        return torch.where(boxes.mask(*x.shape[2:]).to(x.device), x[source], x)
    top, bottom, left, right = (int(edge) for edge in (boxes.top, boxes.bottom, boxes.left, boxes.right))
    moved = x.clone()
    moved[:, :, top:bottom, left:right] = x[:, :, top:bottom, left:right][source]
    return moved


paste_box_op, paste_box_transposed_op = register_affine(
    "paste_box", _forward, _transposed, settings="bool per_sample, int stream"
)
