"""What a count tells of a probability, with a stated risk of being wrong (Clopper & Pearson 1934)."""

from __future__ import annotations

from nfm.errors import UsageError, need


def lower_bound(hits: int, n: int, *, alpha: float) -> float:
    """Return what a probability with `hits` of `n` is above, wrong with probability `alpha` at most.

    >>> round(lower_bound(100, 100, alpha=0.001), 4)  # alpha ** (1 / n)
    0.9333
    """
    _check(hits, n, alpha)
    return 0.0 if hits == 0 else _beta_quantile(hits, n - hits + 1, alpha)


def upper_bound(hits: int, n: int, *, alpha: float) -> float:
    """Return what a probability with `hits` of `n` is below, wrong with probability `alpha` at most."""
    _check(hits, n, alpha)
    return 1.0 if hits == n else _beta_quantile(hits + 1, n - hits, 1 - alpha)


def clopper_pearson(hits: int, n: int, *, alpha: float = 0.05) -> tuple[float, float]:
    """Return the two-sided interval: each end is wrong with probability alpha / 2 at most.

    >>> low, high = clopper_pearson(8, 10)
    >>> round(low, 4), round(high, 4)
    (0.4439, 0.9748)
    """
    return lower_bound(hits, n, alpha=alpha / 2), upper_bound(hits, n, alpha=alpha / 2)


def check_alpha(alpha: float) -> float:
    """Return the probability of being wrong, or refuse it."""
    if not 0 < alpha < 1:
        raise UsageError(f"alpha: expected a probability of being wrong between 0 and 1, got {alpha!r}")
    return alpha


def _check(hits: int, n: int, alpha: float) -> None:
    check_alpha(alpha)
    if not 0 <= hits <= n or n < 1:
        raise UsageError(f"expected a count from 0 to n and n from 1 up, got {hits} of {n}")


def _beta_quantile(a: int, b: int, probability: float) -> float:
    try:
        from scipy.special import betaincinv
    except (ImportError, RuntimeError) as error:
        raise need("scipy", "data", "a Clopper-Pearson bound", error) from error
    return float(betaincinv(a, b, probability))
