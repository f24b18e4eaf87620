"""Small operations on a batch in which every example has its own number."""

from __future__ import annotations

import torch
from torch import Tensor

from nfm.core.norms import spread


def choose(where: Tensor, yes: Tensor, no: Tensor) -> Tensor:
    """Return `yes` for the examples where `where` (bool, (B,)) is true, else `no`."""
    return torch.where(spread(where, yes), yes, no)


def rectangle(top_left: Tensor, sides: tuple[int, int], size: tuple[int, int]) -> Tensor:
    """Return a rectangle an example inside the image: bool (B, 1, H, W).

    top_left: (B, 2), uniform on [0, 1), becomes a place at which the rectangle still fits.
    """
    rows, columns = (_span(top_left[:, axis], sides[axis], size[axis]) for axis in (0, 1))
    return rows[:, None, :, None] & columns[:, None, None, :]


def _span(uniform: Tensor, side: int, size: int) -> Tensor:
    """Return which of `size` places are covered along one axis: bool (B, size)."""
    first = (uniform[:, None] * (size - side + 1)).floor()
    place = torch.arange(size, device=uniform.device)
    return (place >= first) & (place < first + side)
