"""Noise of single values: the tables hold the laws, and the draws follow them."""

import numpy as np
import pytest
import torch
from scipy import stats

from nfm.evaluate.corruptions import corrupt
from nfm.evaluate.corruptions.laws import COIN, LEVELS, alias_table, noise_law

CASES = [
    ("gaussian", 0.04),
    ("gaussian", 0.38),
    ("speckle", 0.2),
    ("shot", 500),
    ("shot", 3),
    ("impulse", 0.07),
]


def expected_law(kind: str, parameter: float, old: int) -> np.ndarray:
    """Return the law of the new level by SciPy's distributions: uint8(clip(noisy value, 0, 1) * 255)."""
    if kind == "impulse":
        law = np.zeros(LEVELS)
        law[old] = 1 - parameter
        law[[0, 255]] += parameter / 2
        return law
    if kind == "shot":
        counts = np.arange(2000)
        levels = np.uint8(np.clip(counts / parameter, 0, 1) * 255)
        chance = stats.poisson.pmf(counts, old / 255 * parameter)
        return np.bincount(levels, weights=chance, minlength=LEVELS)
    deviation = parameter * (old / 255 if kind == "speckle" else 1)
    if deviation == 0:
        return np.eye(LEVELS)[old]
    below = stats.norm.cdf(np.arange(1, LEVELS) / 255, loc=old / 255, scale=deviation)
    return np.diff(np.r_[0, below, 1])


@pytest.mark.parametrize(("kind", "parameter"), CASES)
def test_laws_are_those_of_the_distributions(kind: str, parameter: float) -> None:
    law = noise_law(kind, parameter).numpy()
    for old in (0, 1, 100, 254, 255):
        assert np.allclose(law[old], expected_law(kind, parameter, old), rtol=1e-6, atol=1e-12)
        assert not np.allclose(law[100], expected_law(kind, parameter * 0.9, 100), rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize(("kind", "parameter"), CASES)
def test_a_table_holds_its_law(kind: str, parameter: float) -> None:
    law = noise_law(kind, parameter)
    packed = alias_table(law).view(LEVELS, LEVELS).numpy().astype(np.int64)
    change, columns = packed & 255, np.arange(LEVELS)
    kept = np.clip((packed >> 8) + 1 - (change < columns), 0, COIN) / COIN
    held = kept / LEVELS
    for row in range(LEVELS):
        np.add.at(held[row], columns ^ change[row], (1 - kept[row]) / LEVELS)
    assert np.abs(held - law.numpy()).max() < 1e-6  # each column is rounded by at most 2**-24
    assert np.abs(np.roll(held, 1, axis=1) - law.numpy()).max() > 1e-3


@pytest.mark.parametrize(
    ("family", "kind", "parameter"),
    [
        ("gaussian_noise", "gaussian", 0.08),
        ("speckle_noise", "speckle", 0.12),
        ("shot_noise", "shot", 100),
        ("impulse_noise", "impulse", 0.03),
    ],
)
@pytest.mark.parametrize("old", [3, 120, 250])
def test_draws_follow_the_law(family: str, kind: str, parameter: float, old: int) -> None:
    images = torch.full((100, 3, 32, 32), old, dtype=torch.uint8)
    levels = corrupt(images, torch.arange(100), family, 3).flatten().numpy()
    counts = np.bincount(levels, minlength=LEVELS)
    assert p_value(counts, expected_law(kind, parameter, old)) > 1e-4
    assert p_value(counts, expected_law(kind, parameter * 1.1, old)) < 1e-6


def p_value(counts: np.ndarray, law: np.ndarray) -> float:
    """Return that of a chi-squared test; levels that are expected less than five times are one."""
    expected = law * counts.sum()
    often = expected >= 5
    observed = np.r_[counts[often], counts[~often].sum()]
    wanted = np.r_[expected[often], expected[~often].sum()]
    observed, wanted = observed[wanted > 0.5], wanted[wanted > 0.5]
    return float(stats.chi2.sf(((observed - wanted) ** 2 / wanted).sum(), len(wanted) - 1))
