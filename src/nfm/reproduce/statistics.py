"""Numbers over seeds: means with their spread, and an exact paired test."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, stdev

import numpy as np
from numpy.typing import NDArray

from nfm.errors import UsageError
from nfm.evaluate.metrics import wilson_interval
from nfm.results import Row

TWO_SIDED = 1.96  # standard deviations to either end of a 95% interval
DIGITS = 6  # after the point, in rows and claims: with fewer, what is shown would be rounded twice
ENOUGH = 3  # seeds: of fewer, no difference is called clear and no number the best
EXACT = 40  # differences: above, the 2**(n/2) signs of a half are too many to go through


@dataclass(frozen=True)
class Number:
    """A mean over seeds; one seed's interval is Wilson's, several have a standard deviation."""

    mean: float
    std: float | None
    seeds: int
    n: int
    lo: float | None = None
    hi: float | None = None

    def as_row(self) -> Row:
        """Return it for a file: what there is."""
        told = {name: value for name, value in asdict(self).items() if value is not None}
        return {
            name: round(value, DIGITS) if isinstance(value, float) else value for name, value in told.items()
        }


def over_runs(rows: Iterable[Row], metric: str = "accuracy") -> Number | None:
    """Return the mean of a metric over rows of one cell, one a training seed."""
    by_seed = {row["train_seed"]: row for row in rows if metric in row}
    values = [row[metric] for row in by_seed.values()]
    if not values:
        return None
    n = min(row["n"] for row in by_seed.values())
    if len(values) > 1:
        return Number(fmean(values), stdev(values), len(values), n)
    ends = wilson_interval(round(values[0] * n), n) if metric == "accuracy" else (None, None)
    return Number(values[0], None, 1, n, *ends)


def deviation(number: Row) -> float:
    """Return the standard deviation of an accuracy in a file: that over seeds, or of its test images if it is greater.

    A few seeds may come out alike by chance, and of one nothing is known but its images.
    """
    if "std" not in number:
        return float(number["hi"] - number["lo"]) / 2 / TWO_SIDED
    of_images = math.sqrt(number["mean"] * (1 - number["mean"]) / number["n"])
    return max(float(number["std"]), of_images)


def paired_test(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the two-sided p-value that paired differences have mean 0, by all changes of their signs (Fisher).

    >>> paired_test([0.9, 0.8, 0.9, 0.8], [0.7, 0.7, 0.7, 0.7])
    0.125
    """
    if len(first) != len(second) or not 1 <= len(first) <= EXACT:
        raise UsageError(f"expected 1 to {EXACT} pairs, got {len(first)} and {len(second)} numbers")
    differences = np.asarray(first, dtype=np.float64) - np.asarray(second, dtype=np.float64)
    least = abs(differences.sum()) - 1e-12 * max(1.0, float(np.abs(differences).sum()))
    if least <= 0:
        return 1.0
    half = len(differences) // 2
    some, others = _signed_sums(differences[:half]), np.sort(_signed_sums(differences[half:]))
    above = len(others) - np.searchsorted(others, least - some)  # sums lie symmetrically: as many are below
    return float(2 * above.sum() / (len(some) * len(others)))


def _signed_sums(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the sums of `values` (n,) under all changes of their signs, (2**n,)."""
    sums = np.zeros(1)
    for value in values:
        sums = np.concatenate([sums + value, sums - value])
    return sums
