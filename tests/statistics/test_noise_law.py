"""The values of the noise have the laws they are named after, and `rms` tells their strength."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from kolmogorov import LIMIT, distance
from scipy.special import betainc, ndtr
from torch import Tensor

import nfm
from nfm.core import noise_plan
from nfm.core.blocks import SMALL, blocks_of
from nfm.core.compiled import problem
from nfm.core.draw import Choice
from nfm.core.kernel import KERNELS, use_kernel
from nfm.core.laws import LAWS
from nfm.core.noise import SCALE_LAWS
from nfm.core.streams import draw_values

CPU = torch.device("cpu")
SIGMAS = 4.5
COUNT = 100_000
CDFS = {"gaussian": ndtr, "uniform": lambda v: np.clip((v + 1) / 2, 0, 1)}


@pytest.fixture(autouse=True, params=KERNELS)
def kernel(request: pytest.FixtureRequest) -> Iterator[str]:
    """Every law holds for every kernel."""
    if request.param == "c" and problem():
        pytest.skip(f"no compiled kernel here: {problem()}")
    with use_kernel(request.param) as name:
        yield name


def choice(noise: nfm.Noise, key: int = 1, alpha: float = 0.0) -> Choice:
    return Choice(
        "input", key=key, step=0, alpha=alpha, beta=alpha, per_sample=False, dominant=False, noise=noise
    )


def additive(noise: nfm.Noise, *shape: int, key: int = 1) -> Tensor:
    """Return the additive noise of one draw: what is added to zeros."""
    return choice(noise, key).apply(torch.zeros(shape, dtype=torch.float64))


def multiplicative(noise: nfm.Noise, *shape: int, key: int = 1) -> Tensor:
    """Return the multiplicative noise of one draw: what ones gain."""
    return choice(noise, key).apply(torch.ones(shape, dtype=torch.float64)) - 1


def assert_mean(values: Tensor, expected: float) -> None:
    """The mean lies within SIGMAS standard errors of `expected`."""
    error = values.double().std() / math.sqrt(values.numel())
    assert abs(values.double().mean() - expected) < SIGMAS * error + 1e-12


@pytest.mark.parametrize("law", list(CDFS))
def test_laws_against_their_exact_distributions(law: str) -> None:
    values = draw_values(law, (COUNT,), 3, CPU)
    assert distance(values, CDFS[law]) < LIMIT
    assert distance(values * 1.05, CDFS[law]) > LIMIT


def test_rademacher_values_are_plus_and_minus_1() -> None:
    values = draw_values("rademacher", (COUNT,), 3, CPU)
    assert set(values.unique().tolist()) == {-1.0, 1.0}
    assert_mean(values, 0.0)


@pytest.mark.parametrize("law", list(LAWS))
def test_laws_have_mean_0_and_the_root_mean_square_they_tell(law: str) -> None:
    values = draw_values(law, (COUNT,), 4, CPU)
    assert_mean(values, 0.0)
    assert_mean(values.square(), LAWS[law].rms ** 2)


@pytest.mark.parametrize("scale", list(SCALE_LAWS))
def test_scale_laws_have_the_root_mean_square_they_tell(scale: str) -> None:
    factors = torch.tensor([SCALE_LAWS[scale].sample(key) for key in range(4000)], dtype=torch.float64)
    assert_mean(factors.square(), SCALE_LAWS[scale].rms ** 2)
    assert ((factors >= 0) & (factors <= 1)).all()


def test_the_authors_scale_is_beta_2_5() -> None:
    factors = torch.tensor([SCALE_LAWS["beta"].sample(key) for key in range(4000)])
    assert distance(factors, lambda v: betainc(2, 5, v)) < LIMIT
    assert distance(factors, lambda v: betainc(2, 4, v)) > LIMIT
    assert_mean(factors, 2 / 7)


def test_both_levels_have_scales_of_their_own() -> None:
    noise = nfm.Noise.authors(1.0, 1.0)
    factors = torch.tensor([noise.scaled_levels(key) for key in range(2000)], dtype=torch.float64)
    assert abs(float(torch.corrcoef(factors.T)[0, 1])) < SIGMAS / math.sqrt(2000)
    for column in factors.T:
        assert distance(column, lambda v: betainc(2, 5, v)) < LIMIT


NOISES = [
    nfm.Noise(0.4, 0.2),
    nfm.Noise.authors(0.4, 0.2),
    nfm.Noise(1.0, 0.5, "uniform", "rademacher"),
    nfm.Noise(0.4, 0.2, sparsity=0.65),
    nfm.Noise(0.3, 0.2, "uniform", "gaussian", "uniform", "beta", sparsity=0.3),
]


@pytest.mark.parametrize("noise", NOISES, ids=repr)
def test_rms_is_what_is_sampled(noise: nfm.Noise) -> None:
    """Over many batches: the mean square of a batch varies with its scale, so batches are the unit."""
    for rms, sample in zip(noise.rms(), (additive, multiplicative), strict=True):
        only = sample is additive
        alone = nfm.Noise(
            noise.add if only else 0.0, 0.0 if only else noise.mult, noise.add_law, noise.mult_law,
            noise.add_scale, noise.mult_scale, sparsity=noise.sparsity,
        )  # fmt: skip
        squares = torch.stack([sample(alone, 40, key=key).square().mean() for key in range(800)])
        assert_mean(squares, rms**2)
        with pytest.raises(AssertionError):
            assert_mean(squares, (1.25 * rms) ** 2)


def test_the_authors_noise_has_the_strength_that_the_docs_tell() -> None:
    """docs/differences.md, row 1."""
    assert nfm.Noise.authors(0.4, 0.2).rms() == pytest.approx((0.131, 0.038), abs=5e-4)
    assert nfm.Noise.authors(1.0, 0.5).rms() == pytest.approx((0.327, 0.094), abs=5e-4)
    assert nfm.Noise.paper(0.4, 0.2).rms() == pytest.approx((0.4, 0.2))


@pytest.mark.parametrize("sparsity", [0.1, 0.5, 0.65, 0.99])
def test_sparsity_is_the_share_left_untouched_by_both_noises(sparsity: float) -> None:
    noise = nfm.Noise(0.4, 0.2, sparsity=sparsity)
    x = torch.ones(COUNT, 1, dtype=torch.float64)
    untouched = (choice(noise).apply(x) == x).double()
    assert_mean(untouched, sparsity)
    alone = additive(nfm.Noise(0.4, sparsity=sparsity), COUNT, 1) == 0
    assert torch.equal(alone, untouched.bool())


def test_granularity_says_what_shares_a_value() -> None:
    shape = (4, 3, 5, 5)
    for granularity, different in (("element", 4 * 3 * 25), ("channel", 4 * 3), ("sample", 4)):
        noise = nfm.Noise(0.4, granularity=granularity)
        values = additive(noise, *shape)
        assert len(values.unique()) == different
        kept = {"element": 4, "channel": 2, "sample": 1}[granularity]
        groups = values.reshape(*shape[:kept], -1)
        assert torch.equal(groups, groups[..., :1].expand_as(groups))


def test_relative_noise_follows_the_features_deviation() -> None:
    x = torch.linspace(-3, 5, 200, dtype=torch.float64).reshape(50, 4)
    noise = nfm.Noise(0.4, relative=True)
    added = choice(noise).apply(x) - x
    plain = additive(nfm.Noise(0.4), 50, 4)
    assert torch.allclose(added, plain * x.std(correction=0), rtol=1e-5)
    scaled = choice(noise).apply(10 * x) - 10 * x
    assert torch.allclose(scaled, 10 * added, rtol=1e-5)


def test_a_level_of_0_draws_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = []

    def watch(law: str, key: int, level: float = 1.0) -> noise_plan.Source:
        drawn.append(law)
        return source(law, key, level)

    source = noise_plan.Source
    monkeypatch.setattr(noise_plan, "Source", watch)
    x = torch.ones(4, 3)
    assert torch.equal(choice(nfm.Noise(sparsity=0.5)).apply(x), x)
    assert drawn == []
    choice(nfm.Noise(0.4, sparsity=0.5)).apply(x)
    assert drawn == ["gaussian", "uniform"]


def test_blocks_of_one_feature_are_different_and_uncorrelated() -> None:
    values = draw_values("gaussian", (1, SMALL + 1), 5, CPU)
    rows = [values[block.at].ravel() for block in blocks_of(tuple(values.shape))]
    shortest = min(map(len, rows))
    correlations = torch.corrcoef(torch.stack([row[:shortest] for row in rows]))
    apart = torch.triu(torch.ones_like(correlations), 1).bool()
    assert len(rows) > 4
    assert (correlations[apart].abs() < SIGMAS / math.sqrt(shortest)).all()


def test_both_noises_and_neighbouring_keys_are_uncorrelated() -> None:
    noise = nfm.Noise(1.0, 1.0)
    rows = [additive(nfm.Noise(1.0), COUNT, 1, key=key).ravel() for key in (1, 2)]
    rows.append(multiplicative(nfm.Noise(0.0, 1.0), COUNT, 1, key=1).ravel())
    correlations = torch.corrcoef(torch.stack(rows))[torch.triu(torch.ones(3, 3), 1).bool()]
    assert (correlations.abs() < SIGMAS / math.sqrt(COUNT)).all()
    together = choice(noise).apply(torch.ones(COUNT, 1, dtype=torch.float64)).ravel() - 1
    assert torch.allclose(together, rows[0] + rows[2], atol=1e-6)
