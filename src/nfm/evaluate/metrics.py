"""Shares with intervals, and the comparison of two models on the same examples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean, stdev

import numpy as np
from numpy.typing import ArrayLike

from nfm.errors import ShapeError, UsageError


def accuracy(correct: ArrayLike) -> float:
    """Return the share of true entries.

    >>> accuracy([True, True, False, True])
    0.75
    """
    outcomes = np.asarray(correct, dtype=bool)
    if outcomes.size == 0:
        raise UsageError("expected at least one outcome, got none")
    return float(outcomes.mean())


def wilson_interval(hits: int, n: int, *, confidence: float = 0.95) -> tuple[float, float]:
    """Return Wilson's score interval of a share (Wilson 1927).

    >>> low, high = wilson_interval(9500, 10_000)
    >>> round(low, 4), round(high, 4)
    (0.9456, 0.9541)
    """
    if not (0 <= hits <= n and n > 0 and 0 < confidence < 1):
        raise UsageError(
            f"expected 0 <= hits <= n, n > 0 and 0 < confidence < 1, got {hits}, {n}, {confidence}"
        )
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    share = hits / n
    centre = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * math.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
    return (0.0 if hits == 0 else centre - half), (1.0 if hits == n else centre + half)


@dataclass(frozen=True)
class McNemar:
    """A paired test: how often one model alone is right, and how surprising the split is under equality."""

    only_first: int
    only_second: int
    p_value: float


def mcnemar(first: ArrayLike, second: ArrayLike) -> McNemar:
    """Compare two models by their correctness on the same examples: exact and two-sided (McNemar 1947).

    >>> mcnemar([1, 1, 1, 0], [0, 0, 0, 1])
    McNemar(only_first=3, only_second=1, p_value=0.625)
    """
    a, b = np.asarray(first, dtype=bool), np.asarray(second, dtype=bool)
    if a.shape != b.shape or a.ndim != 1:
        raise ShapeError(f"expected outcomes of the same examples, got shapes {a.shape} and {b.shape}")
    only_first, only_second = int((a & ~b).sum()), int((b & ~a).sum())
    return McNemar(
        only_first, only_second, _two_sided(min(only_first, only_second), only_first + only_second)
    )


def _two_sided(least: int, n: int) -> float:
    """Return min(1, 2 P(Binomial(n, 1/2) <= least)), in whole numbers: no digit is lost at any n."""
    ways = total = 1
    for k in range(1, least + 1):
        ways = ways * (n - k + 1) // k
        total += ways
    return min(1.0, 2 * total / 2**n)


@dataclass(frozen=True)
class OverSeeds:
    """The mean over models trained with different seeds; no deviation where there is one model."""

    mean: float
    std: float | None
    seeds: int


def over_seeds(values: Sequence[float]) -> OverSeeds:
    """Return mean and sample standard deviation (n - 1) of one number a seed.

    >>> over_seeds([0.5])
    OverSeeds(mean=0.5, std=None, seeds=1)
    """
    if not values:
        raise UsageError("expected one number a seed, got none")
    return OverSeeds(fmean(values), stdev(values) if len(values) > 1 else None, len(values))
