"""Distances of noisy features: bounds hold in every random case, and the printed forms fail where they should."""

from __future__ import annotations

import functools
import math

import pytest
import torch
from torch import Tensor

from nfm.core.noise import Noise
from nfm.errors import ShapeError, UsageError
from nfm.randomness import torch_generator
from nfm.theory.total_variation import (
    BOUNDS,
    Pair,
    SiteNoise,
    bhattacharyya,
    bretagnolle_huber,
    equal_covariance,
    noisy_pair,
    pinsker,
    sampled_distance,
    total_variation_bound,
    triangle,
)
from nfm.theory.total_variation_ball import (
    BALL_BOUNDS,
    ball,
    ball_bhattacharyya,
    largest_radius,
    total_variation_within,
)
from nfm.theory.total_variation_printed import printed_bound, three_term_bound, three_terms

CASES = 640  # random pairs: 32 noises of 20 features each
DRAWS = 4000


def random_cases(seed: int, multiplier: str, count: int = 16) -> list[tuple[SiteNoise, Tensor, Tensor]]:
    """Return noises with 20 features and shifts each, from far below to far above the noise."""
    generator = torch_generator(seed)
    cases = []
    for place in range(count):
        dimension = 1 + place % 8
        add, mult, size, length = torch.rand(4, generator=generator, dtype=torch.float64)
        noise = SiteNoise(float(0.05 + add), float(1.2 * mult), multiplier)
        z = torch.randn(20, dimension, generator=generator, dtype=torch.float64) * 3 * size
        v = torch.randn(20, dimension, generator=generator, dtype=torch.float64)
        v *= torch.rand(20, 1, generator=generator, dtype=torch.float64) * 2 * length * noise.add
        cases.append(
            (noise, torch.where(z.abs() < 0.2, 0.0, z), v)
        )  # some features are zero, as after a ReLU
    return cases


def every_case() -> list[tuple[SiteNoise, Tensor, Tensor]]:
    return [case for seed, kind in enumerate(("element", "scalar")) for case in random_cases(seed, kind)]


@functools.cache
def measured_cases() -> list[tuple[SiteNoise, Tensor, Tensor, Pair, Tensor]]:
    """Return the random cases with distances that are surely not above the true ones."""
    cases = []
    for place, (noise, z, v) in enumerate(every_case()):
        pair = noisy_pair(z, z + v, noise)
        distance, error = sampled_distance(pair, draws=DRAWS, key=place)
        cases.append((noise, z, v, pair, distance - 5 * error))
    return cases


def violations(bound, *, ball_radius: bool = False) -> int:
    """Count the random cases in which a distance is surely above `bound`."""
    broken = 0
    for noise, z, v, pair, distance in measured_cases():
        allowed = bound(z, v.norm(dim=1), noise) if ball_radius else bound(pair)
        broken += int((distance > allowed + 1e-9).sum())
    return broken


def test_the_number_of_cases() -> None:
    assert sum(len(z) for _, z, _ in every_case()) == CASES >= 500


@pytest.mark.parametrize("bound", [*BOUNDS.values(), total_variation_bound], ids=lambda bound: bound.__name__)
def test_no_sampled_distance_is_above_a_bound(bound) -> None:
    assert violations(bound) == 0


@pytest.mark.parametrize("bound", BALL_BOUNDS.values(), ids=lambda bound: bound.__name__)
def test_no_sampled_distance_is_above_a_bound_of_the_ball(bound) -> None:
    assert violations(lambda *case: bound(ball(*case)), ball_radius=True) == 0
    assert violations(total_variation_within, ball_radius=True) == 0


@pytest.mark.parametrize("name", BALL_BOUNDS)
def test_a_bound_of_the_ball_is_above_that_of_every_feature_in_it(name: str) -> None:
    """Also along the axes, towards zero and away from it, where the variances change most."""
    closest = 0.0
    for noise, z, v in every_case():
        radius = v.norm(dim=1)
        axes = torch.eye(z.shape[1], dtype=z.dtype)[torch.arange(len(z)) % z.shape[1]]
        for way in (v, -v, axes, -axes, z + 1e-9, -z - 1e-9, z.sign() + 1e-9, -z.sign() - 1e-9):
            moved = z + way * (radius / way.norm(dim=1))[:, None]
            inside = BOUNDS[name](noisy_pair(z, moved, noise))
            around = BALL_BOUNDS[name](ball(z, radius, noise))
            assert (inside <= around * (1 + 1e-9) + 1e-9).all()
            closest = max(closest, float((inside / around).max()))
    assert closest > 0.99  # it is met: no looser than it has to be


def test_a_bound_that_is_a_little_too_small_would_be_seen() -> None:
    assert violations(lambda pair: 0.9 * bhattacharyya(pair) ** 2) > 0
    assert violations(lambda pair: equal_covariance(Pair(pair.shift, torch.ones_like(pair.ratio)))) > 0
    halved = violations(
        lambda z, radius, noise: total_variation_within(z, radius / 2, noise), ball_radius=True
    )
    assert halved > 0


def grid_distance(pair: Pair) -> Tensor:
    """Return the distance of one-dimensional laws by summing |p - q| / 2 on a fine grid."""
    deviation = pair.ratio.sqrt()
    low = torch.minimum(torch.tensor(-10.0), pair.shift - 10 * deviation)
    high = torch.maximum(torch.tensor(10.0), pair.shift + 10 * deviation)
    x = low + (high - low) * torch.linspace(0, 1, 40_001, dtype=torch.float64)
    p = torch.exp(-x.square() / 2) / math.sqrt(2 * math.pi)
    q = torch.exp(-((x - pair.shift) / deviation).square() / 2) / math.sqrt(2 * math.pi) / deviation
    return ((p - q).abs().sum(1) / 2) * (high - low)[:, 0] / 40_000


def test_exact_distances_in_one_dimension() -> None:
    """Quadrature knows no sampling error: the bounds hold to the last digits, the estimate is right."""
    for noise, z, v in every_case():
        if z.shape[1] != 1:
            continue
        pair = noisy_pair(z, z + v, noise)
        exact = grid_distance(pair)
        assert (exact <= total_variation_bound(pair) + 1e-6).all()
        sampled, error = sampled_distance(pair, draws=DRAWS, key=0)
        assert ((sampled - exact).abs() <= 5 * error + 1e-3).all()


def test_equal_covariances_are_exact() -> None:
    noise = SiteNoise(0.5)
    z = torch.tensor([[1.0, 2.0]])
    pair = noisy_pair(z, z + torch.tensor([[0.3, 0.4]]), noise)  # one deviation apart
    for bound in (equal_covariance, triangle, total_variation_bound):
        assert float(bound(pair)) == pytest.approx(0.3829249, abs=1e-6)  # 2 Phi(1/2) - 1
    assert float(equal_covariance(noisy_pair(z, z + 1, SiteNoise(0.5, 0.1)))) == 1  # it may not be used there
    apart = total_variation_within(z, torch.tensor([0.5]), noise)
    assert float(apart) == pytest.approx(0.3829249, abs=1e-6)


def test_known_divergences() -> None:
    """N(0, 1) and N(1, 4): both divergences by hand; Bretagnolle-Huber, and Le Cam's form below it."""
    pair = Pair(torch.tensor([[1.0]], dtype=torch.float64), torch.tensor([[4.0]], dtype=torch.float64))
    forward, backward = (0.25 - 1 + math.log(4) + 0.25) / 2, (4 - 1 - math.log(4) + 1) / 2
    least = min(forward, backward)
    assert float(pinsker(pair)) == pytest.approx(math.sqrt(least / 2))
    assert float(bretagnolle_huber(pair)) == pytest.approx(math.sqrt(1 - math.exp(-least)))
    overlap = math.sqrt(4 / 5) * math.exp(-1 / 20)  # sqrt(2 s t / (s^2 + t^2)) exp(-v^2 / 4 (s^2 + t^2))
    assert float(bhattacharyya(pair)) == pytest.approx(math.sqrt(1 - overlap**2))
    assert float(bhattacharyya(pair)) < float(bretagnolle_huber(pair))


def test_scalar_and_dense_agree() -> None:
    """The plane of two features tells the same as all d dimensions."""
    for noise, z, v in random_cases(3, "scalar", 6):
        plane = noisy_pair(z, z + v, noise)
        dense = Pair.of_covariances(v, noise.covariance(z), noise.covariance(z + v))
        for bound in (triangle, pinsker, bhattacharyya):
            assert torch.allclose(bound(plane), bound(dense), atol=1e-6)
    noise = SiteNoise(0.5, 0.3, "element")
    dense = Pair.of_covariances(v, noise.covariance(z), noise.covariance(z + v))
    assert torch.allclose(pinsker(noisy_pair(z, z + v, noise)), pinsker(dense), atol=1e-9)
    scalar = noisy_pair(z, z + v, SiteNoise(0.5, 0.3, "scalar"))
    assert not torch.allclose(pinsker(scalar), pinsker(dense), atol=1e-3)


def test_the_printed_bound_is_zero_without_multiplicative_noise() -> None:
    z, v, noise = torch.tensor([1.0, 2.0]), torch.tensor([1.2, 1.6]), SiteNoise(0.5)  # four deviations
    assert printed_bound(z, v, noise) == pytest.approx(0, abs=1e-12)
    pair = noisy_pair(z[None], (z + v)[None], noise)
    distance, error = sampled_distance(pair, draws=DRAWS, key=0)
    assert float(total_variation_bound(pair)) == pytest.approx(0.9545, abs=1e-4)  # 2 Phi(2) - 1
    assert float(distance) == pytest.approx(0.9545, abs=5 * float(error))


def test_the_printed_bound_fails_with_multiplicative_noise_too() -> None:
    z, v, noise = torch.tensor([0.0, 1.0]), torch.tensor([1.0, 0.0]), SiteNoise(0.5, 0.01, "scalar")
    pair = noisy_pair(z[None], (z + v)[None], noise)
    distance, error = sampled_distance(pair, draws=DRAWS, key=0)
    assert printed_bound(z, v, noise) < float(distance - 5 * error)
    assert float(total_variation_bound(pair)) > float(distance - 5 * error)


def test_the_three_term_form_fails_for_different_means() -> None:
    """Equal covariances diag(1, 1e6), v = (1, 1): .009 against an exact .383."""
    v, covariance = torch.ones(2), torch.diag(torch.tensor([1.0, 1e6]))
    exact = equal_covariance(Pair.of_covariances(v[None], covariance[None], covariance[None]))
    assert float(exact) == pytest.approx(0.383, abs=5e-4)
    assert three_term_bound(v, covariance, covariance) == pytest.approx(0.009, abs=5e-4)
    flat = torch.eye(2)  # in a round law it does hold: its second term is |v|
    assert three_terms(v, flat, flat) == pytest.approx((0, math.sqrt(2), 0), abs=1e-6)


def test_largest_radius_is_where_the_bound_is_met() -> None:
    for multiplier in ("element", "scalar"):
        noise = SiteNoise(0.4, 0.2, multiplier)
        z = torch.randn(6, 5, generator=torch_generator(9), dtype=torch.float64).relu()
        wanted = torch.tensor([0.4, 0.3, 0.1, 0.01, 0.0, -0.2], dtype=torch.float64)
        radius = largest_radius(z, wanted, noise)
        assert torch.equal(radius > 1e-9, wanted > 0)
        assert (total_variation_within(z, radius, noise)[:4] <= wanted[:4]).all()
        assert (total_variation_within(z, radius * 1.001, noise)[:4] > wanted[:4]).all()
    exact = largest_radius(z, wanted, SiteNoise(0.4))[0]
    assert float(exact) == pytest.approx(0.4 * 2 * 0.5244005, rel=1e-5)  # 2 add Phi^-1(.7)


def test_larger_balls_are_never_safer() -> None:
    noise = SiteNoise(0.3, 0.5)
    z = torch.randn(1, 7, generator=torch_generator(1), dtype=torch.float64).expand(50, 7)
    radius = torch.linspace(0, 3, 50, dtype=torch.float64)
    for bound in (total_variation_within, lambda *case: ball_bhattacharyya(ball(*case))):
        assert (bound(z, radius, noise).diff() >= 0).all()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SiteNoise(0.0, 0.2), "add: expected a level above 0"),
        (lambda: SiteNoise(math.nan), "add: expected a level above 0"),
        (lambda: SiteNoise(0.1, -1), "mult: expected"),
        (lambda: SiteNoise(0.1, 0.1, "row"), "multiplier: expected element or scalar, got 'row'"),
        (lambda: SiteNoise.of(Noise.authors(0.4, 0.2)), "expected Gaussian noise of fixed levels"),
        (lambda: SiteNoise.of(Noise(0.4, sparsity=0.5)), "one value an element"),
        (lambda: ball(torch.ones(1, 2), torch.tensor([-1.0]), SiteNoise(1.0)), "radius: expected lengths"),
    ],
)
def test_refusals(make, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make()


def test_features_of_different_shapes_are_refused() -> None:
    with pytest.raises(ShapeError, match="two batches of features"):
        noisy_pair(torch.ones(2, 3), torch.ones(2, 4), SiteNoise(1.0))
    assert SiteNoise.of(Noise(0.4, 0.2)) == SiteNoise(0.4, 0.2)


@pytest.mark.parametrize("multiplier", ["element", "scalar"])
def test_samples_have_the_covariance(multiplier: str) -> None:
    noise, z = SiteNoise(0.3, 0.5, multiplier), torch.tensor([1.0, -2.0, 0.0], dtype=torch.float64)
    drawn = noise.sample(z, 200_000, torch_generator(4))
    assert torch.allclose(drawn.mean(0), z, atol=0.02)
    assert torch.allclose(drawn.T.cov(), noise.covariance(z), atol=0.03)
    other = SiteNoise(0.3, 0.5, "scalar" if multiplier == "element" else "element")
    assert not torch.allclose(drawn.T.cov(), other.covariance(z), atol=0.1)
