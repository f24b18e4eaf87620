"""How far a sample is from an exact law."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

LIMIT = 1.95  # of `distance`: p = 0.001


def distance(values: np.ndarray, cdf: Callable[[np.ndarray], np.ndarray]) -> float:
    """Return the Kolmogorov-Smirnov distance times the root of the sample size."""
    exact = cdf(np.sort(np.asarray(values, dtype=np.float64).ravel()))
    steps = np.arange(len(exact) + 1) / len(exact)
    return max((exact - steps[:-1]).max(), (steps[1:] - exact).max()) * math.sqrt(len(exact))
