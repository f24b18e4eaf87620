"""Receipts: how often an operator ran for a choice, and on what; what a draw is worth if it met no forward pass."""

from __future__ import annotations

import weakref
from collections.abc import Sequence

# By serial number. A WeakValueDictionary takes longer, and every step asks.
_OPEN: dict[int, weakref.ref[Receipt]] = {}


class Receipt:
    """The runs of one serial number, and the shape of the feature of the last, () before the first."""

    def __init__(self, serial: int, *, runs: int = 0, shape: tuple[int, ...] = ()) -> None:
        self.runs, self.shape = runs, shape
        _OPEN[serial] = weakref.ref(self, lambda _: _OPEN.pop(serial, None))


def stamp(serial: int, shape: Sequence[int]) -> None:
    """Note a run on a feature of `shape` for the choice of this serial number, if it is still there."""
    held = _OPEN.get(serial)
    receipt = None if held is None else held()
    if receipt is not None:
        receipt.runs += 1
        receipt.shape = tuple(shape)
