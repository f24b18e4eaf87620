"""The mixing weight: Beta(alpha, beta), right for every shape from 1e-8 to 1e3."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nfm.errors import UsageError
from nfm.randomness import passing_generator

Floats = NDArray[np.float64]


def check_shape(name: str, value: float, *, zero: bool) -> float:
    """Return a shape parameter of the Beta law: finite, and positive (or 0 where `zero` allows it)."""
    number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or value < 0 or (value == 0 and not zero):
        rule = "a finite number, 0 (no mixing) or greater" if zero else "a finite number greater than 0"
        raise UsageError(f"{name}: expected {rule}, got {value!r}")
    return float(value)


def sample_beta(alpha: float, beta: float, size: int, key: int) -> Floats:
    """Draw `size` values of Beta(alpha, beta).

    Gamma(a) is drawn as Gamma(a + 1) * U^(1/a) in logarithms, so that nothing underflows at small
    shapes, where the law has almost all its mass at 0 and 1.

    >>> sample_beta(1e-8, 1e-8, 4, key=3)
    array([1., 0., 1., 1.])
    """
    return _beta(alpha, beta, *_draws(alpha, beta, size, key))


def _draws(alpha: float, beta: float, size: int | None, key: int) -> Iterator[Any]:
    """Yield what a value of Beta(alpha, beta) is made of: for each shape, one of Gamma(shape + 1) and one of U."""
    generator = passing_generator(key)
    for shape in (alpha, beta):
        yield generator.standard_gamma(shape + 1.0, size)
        yield generator.random(size)


def _beta(alpha: float, beta: float, *draws: Floats) -> Floats:
    gamma_a, uniform_a, gamma_b, uniform_b = draws
    log_a = np.log(gamma_a) + np.log1p(-uniform_a) / alpha
    log_b = np.log(gamma_b) + np.log1p(-uniform_b) / beta
    with np.errstate(over="ignore"):  # exp(710) and more: the weight is 0 to the last bit
        weights: Floats = 1.0 / (1.0 + np.exp(log_b - log_a))
    return weights


def sample_weights(alpha: float, beta: float, size: int, key: int, *, dominant: bool) -> Floats:
    """Draw `size` mixing weights; `alpha` 0 means weight 1; `dominant` means max(weight, 1 - weight)."""
    if alpha == 0:
        return np.ones(size)
    return _dominant(sample_beta(alpha, beta, size, key), dominant)


def weight_a_key(alpha: float, beta: float, keys: Sequence[int], *, dominant: bool) -> Floats:
    """Draw one mixing weight for each of `keys`: each as `sample_weights` of size 1 does.

    >>> bool(weight_a_key(1.0, 1.0, [3, 4], dominant=False)[1] == sample_weights(1.0, 1.0, 1, 4, dominant=False)[0])
    True
    """
    if alpha == 0:
        return np.ones(len(keys))
    draws = np.array([[*_draws(alpha, beta, None, key)] for key in keys])
    return _dominant(_beta(alpha, beta, *draws.T), dominant)


def _dominant(weights: Floats, dominant: bool) -> Floats:
    return np.maximum(weights, 1.0 - weights) if dominant else weights
