"""Measure two ways of doing a thing by turns, and tell the median of their ratios with its spread."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Ratio:
    """What `ours` costs in units of `reference`: the median over rounds, the quartiles, and the best seconds."""

    name: str
    median: float
    low: float
    high: float
    rounds: int
    ours: float
    reference: float

    def __str__(self) -> str:
        return (
            f"{self.name:<58} {self.median:6.3f}  [{self.low:.3f}, {self.high:.3f}]  n={self.rounds}  "
            f"{1000 * self.ours:.4g} ms against {1000 * self.reference:.4g} ms"
        )


def seconds(work: Callable[[], object]) -> float:
    """Return how long `work` takes once."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def compare(name: str, ours: Callable[[], object], reference: Callable[[], object], *, rounds: int) -> Ratio:
    """Run both once to warm up, then by turns, the first place changing each round."""
    ours(), reference()
    times: list[tuple[float, float]] = []
    for turn in range(rounds):
        if turn % 2:
            second = seconds(reference)
            times.append((seconds(ours), second))
        else:
            times.append((seconds(ours), seconds(reference)))
    ratios = sorted(a / b for a, b in times)
    quarter = len(ratios) // 4
    return Ratio(
        name, statistics.median(ratios), ratios[quarter], ratios[-1 - quarter], rounds,
        min(a for a, _ in times), min(b for _, b in times),
    )  # fmt: skip
