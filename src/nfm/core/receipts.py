"""Receipts: how often an operator ran for a choice, and on what; what a draw is worth if it met no forward pass."""

from __future__ import annotations

import weakref
from collections.abc import Sequence

_OPEN: dict[int, weakref.ref[Receipt]] = {}  # by serial number: those that a graph may be asked to find


class Receipt:
    """The runs of one forward pass, and the shape of the feature of the last, () before the first."""

    def __init__(self, *, runs: int = 0, shape: tuple[int, ...] = ()) -> None:
        self.runs, self.shape = runs, shape

    def stamp(self, shape: Sequence[int]) -> None:
        """Note a run on a feature of `shape`."""
        self.runs += 1
        self.shape = tuple(shape)

    def open(self, serial: int) -> None:
        """Let this receipt be found by a serial number, as long as it is there."""
        _OPEN[serial] = weakref.ref(self, lambda _: _OPEN.pop(serial, None))


def receipt_of(serial: int) -> Receipt:
    """Return the receipt of a serial number, or one that nobody reads if it is not there any more."""
    held = _OPEN.get(serial)
    return (held() if held is not None else None) or Receipt()
