"""Intervals and the paired test against scipy."""

import numpy as np
import pytest
from scipy import stats

from nfm.errors import ShapeError, UsageError
from nfm.evaluate.metrics import OverSeeds, accuracy, mcnemar, over_seeds, wilson_interval


@pytest.mark.parametrize(("hits", "n"), [(0, 1), (0, 50), (50, 50), (3, 10), (500, 1000), (9500, 10_000)])
@pytest.mark.parametrize("confidence", [0.9, 0.95])
def test_wilson_is_scipys(hits: int, n: int, confidence: float) -> None:
    expected = stats.binomtest(hits, n).proportion_ci(confidence, method="wilson")
    assert wilson_interval(hits, n, confidence=confidence) == pytest.approx((expected.low, expected.high))
    assert wilson_interval(hits, n, confidence=0.8) != pytest.approx((expected.low, expected.high))


@pytest.mark.parametrize(("a", "b"), [(0, 0), (5, 0), (3, 9), (40, 40), (1200, 1100)])
def test_mcnemar_is_the_exact_binomial_test(a: int, b: int) -> None:
    first = np.array([True] * a + [False] * b + [True] * 5 + [False] * 3)
    second = np.array([False] * a + [True] * b + [True] * 5 + [False] * 3)
    found = mcnemar(first, second)
    assert (found.only_first, found.only_second) == (a, b)
    expected = stats.binomtest(a, a + b).pvalue if a + b else 1.0
    assert found.p_value == pytest.approx(expected, rel=1e-9)


def test_mcnemar_of_a_large_difference_does_not_underflow_into_an_error() -> None:
    assert mcnemar([True] * 10_000, [False] * 10_000).p_value == 0.0


def test_over_seeds() -> None:
    assert over_seeds([0.5]) == OverSeeds(0.5, None, 1)
    found = over_seeds([0.1, 0.2, 0.6])
    assert (found.mean, found.std) == pytest.approx((0.3, np.std([0.1, 0.2, 0.6], ddof=1)))


def test_nothing_is_refused() -> None:
    for refused in (lambda: accuracy([]), lambda: over_seeds([]), lambda: wilson_interval(0, 0)):
        with pytest.raises(UsageError):
            refused()
    with pytest.raises(UsageError, match="hits"):
        wilson_interval(11, 10)
    with pytest.raises(ShapeError, match="same examples"):
        mcnemar([True], [True, False])
    assert accuracy([True, False]) == 0.5
