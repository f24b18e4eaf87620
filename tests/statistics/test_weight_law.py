"""The weight has the law Beta(alpha, beta) from 1e-8 to 1e3. Keys are fixed: nothing here is left to chance."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from kolmogorov import LIMIT, distance
from scipy.special import betainc

import nfm
from nfm.core.weights import sample_beta, sample_weights
from nfm.errors import UsageError

COUNT = 200_000
SHAPES = [1e-8, 1e-4, 1e-2, 0.1, 0.2, 1.0, 10.0, 1e3]
SIGMAS = 4.5  # of the standard error: about one chance in 150,000


def variance(a: float, b: float) -> float:
    return a * b / ((a + b) ** 2 * (a + b + 1))


def assert_moments(weights: np.ndarray, a: float, b: float) -> None:
    """Mean within SIGMAS standard errors of its exact value, variance within 2%."""
    exact = variance(a, b)
    assert abs(weights.mean() - a / (a + b)) < SIGMAS * math.sqrt(exact / len(weights))
    assert weights.var() == pytest.approx(exact, rel=0.02)


@pytest.mark.parametrize("alpha", SHAPES)
def test_moments_of_equal_shapes(alpha: float) -> None:
    assert_moments(sample_beta(alpha, alpha, COUNT, key=1), alpha, alpha)


@pytest.mark.parametrize(("a", "b"), [(2.0, 5.0), (0.1, 3.0), (1e-3, 1e-2), (400.0, 1.0)])
def test_moments_of_different_shapes(a: float, b: float) -> None:
    assert_moments(sample_beta(a, b, COUNT, key=2), a, b)


@pytest.mark.parametrize("alpha", [1e-8, 1e-4])
def test_torchs_own_sampler_would_not_pass(alpha: float) -> None:
    """It puts its mass at 0.5, where the law has none."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        theirs = torch.distributions.Beta(alpha, alpha).sample((20_000,)).numpy()
    with pytest.raises(AssertionError):
        assert_moments(theirs, alpha, alpha)
    assert (theirs == 0.5).mean() > 0.8
    assert not (sample_beta(alpha, alpha, COUNT, key=1) == 0.5).any()


@pytest.mark.parametrize(
    ("a", "b"), [(0.2, 0.2), (0.5, 0.5), (1.0, 1.0), (2.0, 5.0), (0.5, 3.0), (50.0, 50.0), (1e3, 1e3)]
)
def test_law_against_its_exact_distribution(a: float, b: float) -> None:
    weights = sample_beta(a, b, 50_000, key=3)
    assert distance(weights, lambda w: betainc(a, b, w)) < LIMIT
    assert distance(weights, lambda w: betainc(1.2 * a, b, w)) > LIMIT


@pytest.mark.parametrize("alpha", [1e-8, 1e-4, 1e-3, 1e-2])
def test_mass_near_0_and_1_at_tiny_shapes(alpha: float) -> None:
    weights = sample_beta(alpha, alpha, COUNT, key=4)
    for edge in (1e-12, 1e-6, 1e-2):
        exact = betainc(alpha, alpha, edge)
        allowed = SIGMAS * math.sqrt(exact * (1 - exact) / COUNT) + 1e-12
        assert abs((weights <= edge).mean() - exact) < allowed
        assert abs((1 - weights <= edge).mean() - exact) < allowed


def test_almost_no_mixing_at_the_authors_tiny_shape() -> None:
    weights = sample_beta(1e-8, 1e-8, COUNT, key=5)
    assert set(np.unique(weights)) == {0.0, 1.0}


def test_weights_are_finite_and_within_0_and_1() -> None:
    for alpha in SHAPES:
        for beta in SHAPES:
            weights = sample_beta(alpha, beta, 500, key=6)
            assert np.isfinite(weights).all()
            assert ((weights >= 0) & (weights <= 1)).all()


def test_dominant_weights_are_the_larger_of_both_parts() -> None:
    weights = sample_weights(1.0, 1.0, 50_000, 7, dominant=True)
    assert weights.min() >= 0.5
    assert distance(weights, lambda w: 2 * w - 1) < LIMIT  # uniform on [1/2, 1]
    plain = sample_weights(1.0, 1.0, 50_000, 7, dominant=False)
    assert np.array_equal(weights, np.maximum(plain, 1 - plain))
    assert distance(plain, lambda w: np.clip(2 * w - 1, 0, 1)) > LIMIT


def test_alpha_0_means_weight_1() -> None:
    assert (sample_weights(0.0, 0.0, 5, 1, dominant=False) == 1).all()


@pytest.mark.parametrize(("alpha", "beta"), [(1.0, None), (0.4, None), (2.0, 5.0)])
def test_one_weight_a_batch_has_the_law_over_the_steps(alpha: float, beta: float | None) -> None:
    method = nfm.NoisyFeatureMixup(sites="input", alpha=alpha, beta=beta, noise=nfm.Noise(), seed=8)
    weights = np.array([float(method.choose(["input"]).draw(3).weight) for _ in range(2000)])
    b = alpha if beta is None else beta
    assert distance(weights, lambda w: betainc(alpha, b, w)) < LIMIT
    assert distance(weights, lambda w: betainc(1.5 * alpha, b, w)) > LIMIT


def test_one_weight_a_sample_has_the_law_within_the_batch() -> None:
    method = nfm.NoisyFeatureMixup(sites="input", alpha=0.4, weights="sample", seed=9)
    weights = method.choose(["input"]).draw(5000).weight.numpy()
    assert weights.shape == (5000,)
    assert distance(weights, lambda w: betainc(0.4, 0.4, w)) < LIMIT
    assert len(np.unique(weights)) > 4990


@pytest.mark.parametrize("alpha", [-1.0, -1e-300, math.nan, math.inf, "1", None, True])
def test_bad_shapes_are_refused(alpha: object) -> None:
    with pytest.raises(UsageError, match="alpha: expected a finite number"):
        nfm.NoisyFeatureMixup(alpha=alpha)


@pytest.mark.parametrize("beta", [0.0, -1.0, math.nan, math.inf, "1"])
def test_bad_second_shapes_are_refused(beta: object) -> None:
    with pytest.raises(UsageError, match="beta: expected a finite number greater than 0"):
        nfm.NoisyFeatureMixup(alpha=1.0, beta=beta)
