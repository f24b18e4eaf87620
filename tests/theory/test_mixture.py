"""D~: density, moments and sampler agree, and the auxiliary lemma holds at eps = 1, and only there."""

from __future__ import annotations

import math

import pytest
import torch
from smooth import examples, smooth_net

from nfm.core.noise import Noise
from nfm.core.weights import sample_beta
from nfm.errors import UsageError
from nfm.theory.derivatives import site_map
from nfm.theory.mixture import WeightMixture
from nfm.theory.monte_carlo import auxiliary_loss, training_loss

SHAPES = [(1.0, 1.0), (0.4, 0.4), (2.0, 0.7), (0.3, 5.0)]


def repeated_examples() -> tuple[torch.Tensor, torch.Tensor]:
    """Return 12 examples 100 times over: the same empirical law, a hundred draws a pass."""
    x, y = examples(12)
    return x.repeat(100, 1), y.repeat(100)


def moments_by_density(law: WeightMixture) -> list[float]:
    """Integrate density, (1 - w) and (1 - w)^2 with w = (1 + tanh(t)) / 2: no end of the interval is lost."""
    t = torch.linspace(-60, 60, 400_001, dtype=torch.float64)
    low = torch.sigmoid(-2 * t)  # 1 - w
    inside = (low > 1e-15) & (low < 1 - 1e-15)
    t, low = t[inside], low[inside]
    mass = law.density(1 - low) * 2 * low * (1 - low)
    return [float(torch.trapezoid(mass * low**power, t)) for power in (0, 1, 2)]


@pytest.mark.parametrize(("alpha", "beta"), SHAPES)
def test_the_density_has_the_moments_of_the_closed_form(alpha: float, beta: float) -> None:
    law = WeightMixture(alpha, beta)
    whole, mean, square = moments_by_density(law)
    assert whole == pytest.approx(1, abs=1e-4)
    assert mean == pytest.approx(law.mean, abs=1e-4)
    assert square == pytest.approx(law.square, abs=1e-4)


@pytest.mark.parametrize(("alpha", "beta"), SHAPES)
def test_the_sampler_has_the_moments_of_the_closed_form(alpha: float, beta: float) -> None:
    law = WeightMixture(alpha, beta)
    rest = 1 - law.sample(200_000, key=3)
    plain = 1 - torch.from_numpy(sample_beta(alpha, beta, 200_000, key=3))
    for power, expected in ((1, law.mean), (2, law.square)):
        found = rest**power
        error = float(found.std()) / math.sqrt(len(found))
        assert abs(float(found.mean()) - expected) < 4 * error
        assert abs(float((plain**power).mean()) - expected) > 8 * error  # Beta(a, b) itself has others


def test_the_mixture_is_uniform_only_at_equal_shapes() -> None:
    """Half of each Beta law, as the text has it, has another mean at (2, 0.7)."""
    alpha, beta = 2.0, 0.7
    half = (beta / (alpha + beta + 1) + alpha / (alpha + beta + 1)) / 2
    assert WeightMixture(alpha, beta).mean == pytest.approx(0.2803, abs=1e-4)
    assert half == pytest.approx(0.3649, abs=1e-4)
    assert WeightMixture(1.3, 1.3).share == 0.5


def test_nothing_is_mixed_at_alpha_0() -> None:
    law = WeightMixture(0.0, 0.0)
    assert (law.mean, law.square) == (0.0, 0.0)
    assert torch.equal(law.sample(3, key=0), torch.ones(3, dtype=torch.float64))
    with pytest.raises(UsageError, match="beta: expected a finite number greater than 0"):
        WeightMixture(1.0, 0.0)


@pytest.mark.parametrize("site", ["input", "1"])
def test_the_auxiliary_lemma(site: str) -> None:
    """The training loss with mixed labels is the loss with the own label and a weight of D~ (40 passes of 1200)."""
    net = smooth_net()
    with torch.no_grad():
        net[-1].weight.mul_(4)
    x, y = repeated_examples()
    places = site_map(net, x, site=site)
    settings = {"noise": Noise(0.3, 0.2), "alpha": 2.0, "beta": 0.7, "draws": 40}
    trained = training_loss(places, y, **settings)
    auxiliary = auxiliary_loss(places, y, **settings)
    error = math.hypot(trained.error, auxiliary.error)
    assert abs(trained.value - auxiliary.value) < 4 * error
    assert error < 0.01
    swapped = auxiliary_loss(places, y, **{**settings, "alpha": 8.0, "beta": 8.0})
    assert abs(trained.value - swapped.value) > 4 * error


def test_the_lemma_needs_eps_1() -> None:
    net = smooth_net()
    with torch.no_grad():
        net[-1].weight.mul_(4)
    x, y = repeated_examples()
    places = site_map(net, x, site="input")
    settings = {"noise": Noise(0.3, 0.2), "alpha": 1.0, "beta": 1.0, "draws": 10}
    trained, half = training_loss(places, y, **settings), auxiliary_loss(places, y, eps=0.5, **settings)
    assert abs(trained.value - half.value) > 6 * math.hypot(trained.error, half.error)
