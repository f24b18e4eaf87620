"""Receipts: how often an operator ran for a choice, and on what; what a draw is worth if it met no forward pass."""

from __future__ import annotations

import threading
from collections.abc import Sequence


class Receipts:
    """The runs of each serial number, and the shape of the feature of the last."""

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self._shapes: dict[int, tuple[int, ...]] = {}
        self._lock = threading.Lock()

    def open(self, serial: int) -> None:
        with self._lock:
            self._counts[serial] = 0

    def close(self, serial: int) -> None:
        with self._lock:
            self._counts.pop(serial, None)
            self._shapes.pop(serial, None)

    def count(self, serial: int) -> int:
        return self._counts.get(serial, 0)

    def shape(self, serial: int) -> tuple[int, ...] | None:
        """Return the shape of the feature that was met, or None before it was."""
        return self._shapes.get(serial)

    def stamp(self, serial: int, shape: Sequence[int]) -> None:
        with self._lock:
            if serial in self._counts:
                self._counts[serial] += 1
                self._shapes[serial] = tuple(shape)


RECEIPTS = Receipts()
