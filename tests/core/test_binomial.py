"""Clopper-Pearson bounds: wrong no more often than they say, at both ends."""

from __future__ import annotations

import math

import pytest

from nfm.core.binomial import clopper_pearson, lower_bound, upper_bound
from nfm.errors import UsageError


def test_clopper_pearson_covers() -> None:
    """For every true probability the interval misses it with probability alpha at most, summed exactly."""
    n, alpha = 40, 0.1
    for p in (0.02, 0.3, 0.5, 0.77, 0.99):
        missed = low_missed = 0.0
        for k in range(n + 1):
            weight = math.comb(n, k) * p**k * (1 - p) ** (n - k)
            low, high = clopper_pearson(k, n, alpha=alpha)
            missed += weight * (not low <= p <= high)
            low_missed += weight * (lower_bound(k, n, alpha=alpha) > p)
        assert missed <= alpha
        assert low_missed <= alpha
    plain = sum(math.comb(n, k) * 0.5**n for k in range(n + 1) if k / n > 0.5)
    assert plain > alpha  # the share itself is above the truth far more often
    assert lower_bound(0, 10, alpha=0.1) == 0
    assert upper_bound(10, 10, alpha=0.1) == 1
    assert lower_bound(100, 100, alpha=0.001) == pytest.approx(0.001 ** (1 / 100))
    with pytest.raises(UsageError, match="expected a count from 0 to n"):
        lower_bound(11, 10, alpha=0.1)
    with pytest.raises(UsageError, match="alpha: expected"):
        upper_bound(1, 10, alpha=1.0)
