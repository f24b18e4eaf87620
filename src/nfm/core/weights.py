"""The mixing weight: Beta(alpha, beta), right for every shape from 1e-8 to 1e3."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from nfm.errors import UsageError
from nfm.randomness import passing_generator


def check_shape(name: str, value: float, *, zero: bool) -> float:
    """Return a shape parameter of the Beta law: finite, and positive (or 0 where `zero` allows it)."""
    number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or value < 0 or (value == 0 and not zero):
        rule = "a finite number, 0 (no mixing) or greater" if zero else "a finite number greater than 0"
        raise UsageError(f"{name}: expected {rule}, got {value!r}")
    return float(value)


def sample_beta(alpha: float, beta: float, size: int, key: int) -> NDArray[np.float64]:
    """Draw `size` values of Beta(alpha, beta).

    Gamma(a) is drawn as Gamma(a + 1) * U^(1/a) in logarithms, so that nothing underflows at small
    shapes, where the law has almost all its mass at 0 and 1.

    >>> sample_beta(1e-8, 1e-8, 4, key=3)
    array([1., 0., 1., 1.])
    """
    generator = passing_generator(key)
    log_a, log_b = (
        np.log(generator.standard_gamma(shape + 1.0, size)) + np.log1p(-generator.random(size)) / shape
        for shape in (alpha, beta)
    )
    with np.errstate(over="ignore"):  # exp(710) and more: the weight is 0 to the last bit
        return 1.0 / (1.0 + np.exp(log_b - log_a))


def sample_weights(alpha: float, beta: float, size: int, key: int, *, dominant: bool) -> NDArray[np.float64]:
    """Draw `size` mixing weights; `alpha` 0 means weight 1; `dominant` means max(weight, 1 - weight)."""
    if alpha == 0:
        return np.ones(size)
    weights = sample_beta(alpha, beta, size, key)
    return np.maximum(weights, 1.0 - weights) if dominant else weights
