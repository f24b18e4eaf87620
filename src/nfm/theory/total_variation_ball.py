"""The largest total variation that a shift of a feature by at most R can cause: bounds that hold.

For every shift v with |v| <= R each part of a bound is at most its value for one coordinate that takes the whole
length, because it is at most c_i v_i^2 there: the sum is at most R^2 max_i c_i. With q = r - 1 the change of
a variance, and m a lower bound of min(1, r):
    q - log(1 + q) <= q^2 / (2 m),   1/r - 1 + log r <= q^2 / (2 m^2),   log((1 + r) / (2 sqrt r)) <= q^2 / (8 m^2).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from nfm.errors import UsageError
from nfm.theory.total_variation import SiteNoise, shifted


@dataclass(frozen=True)
class Ball:
    """What is known of all laws at most `radius` (B, 1) from one; the rest is (B, k)."""

    radius: Tensor
    variance: Tensor  # of the law itself, from below
    least: Tensor  # variance of any law in the ball, from below
    growth: Tensor  # change of a variance, relative to it, a unit of shift: from above
    floor: Tensor  # m: ratio of variances, from below, at most 1

    def worst(self, rate: Tensor) -> Tensor:
        """Return radius^2 times the largest rate (B,)."""
        return (self.radius.square() * rate).amax(1)


def ball(z: Tensor, radius: Tensor, noise: SiteNoise) -> Ball:
    """Return the ball of `radius` (B,) around the features `z` (B, ...)."""
    if not bool((radius >= 0).all()):
        raise UsageError(f"radius: expected lengths, 0 or greater, got {radius.min():g}")
    z, radius = z.flatten(1).double(), radius.double()[:, None]
    a, b = noise.add**2, noise.mult**2
    if noise.multiplier == "element":
        variance, size = noise.variances(z), z.abs()
        least = a + b * (size - radius).clamp(min=0).square()
        return Ball(
            radius, variance, least, b * (2 * size + radius) / variance, (least / variance).clamp(max=1)
        )
    size = z.norm(dim=1, keepdim=True)
    longest = a + b * size.square()  # the largest eigenvalue of Sigma(z); all others are a
    lowest = torch.full_like(size, a)
    growth = b * (2 * size / (longest.sqrt() * noise.add) + radius / a)
    return Ball(radius, lowest, lowest, growth, a / longest)


def ball_triangle(within: Ball) -> Tensor:
    """Return the triangle bound: the exact distance of the means, and 3/2 times the change of the covariance."""
    means = (within.radius / within.variance.sqrt()).amax(1)
    return shifted(means) + 1.5 * (within.radius * within.growth).amax(1)


def ball_divergence(within: Ball) -> Tensor:
    """Return the smaller Kullback-Leibler divergence, in nats."""
    growth = within.growth.square()
    backward = 1 / within.variance + growth / (2 * within.floor)
    forward = 1 / within.least + growth / (2 * within.floor.square())
    return torch.minimum(within.worst(backward), within.worst(forward)) / 2


def ball_pinsker(within: Ball) -> Tensor:
    """Return sqrt(KL / 2)."""
    return (ball_divergence(within) / 2).sqrt()


def ball_bretagnolle_huber(within: Ball) -> Tensor:
    """Return sqrt(1 - exp(-KL))."""
    return (-torch.expm1(-ball_divergence(within))).sqrt()


def ball_bhattacharyya(within: Ball) -> Tensor:
    """Return sqrt(1 - c^2) with c the integral of the root of both densities."""
    growth = within.growth.square() / (16 * within.floor.square())
    rate = 1 / (4 * (within.variance + within.least)) + growth
    return (-torch.expm1(-2 * within.worst(rate))).sqrt()


BALL_BOUNDS: dict[str, Callable[[Ball], Tensor]] = {
    "triangle": ball_triangle,  # without multiplicative noise the exact distance
    "pinsker": ball_pinsker,
    "bretagnolle_huber": ball_bretagnolle_huber,
    "bhattacharyya": ball_bhattacharyya,
}


def total_variation_within(z: Tensor, radius: Tensor, noise: SiteNoise) -> Tensor:
    """Return how far, at most, the law of a noisy feature moves when the feature moves by `radius` (B,)."""
    within = ball(z, radius, noise)
    return torch.stack([bound(within) for bound in BALL_BOUNDS.values()]).amin(0).clamp(max=1)


def largest_radius(z: Tensor, distance: Tensor, noise: SiteNoise, *, steps: int = 40) -> Tensor:
    """Return the largest shift (B,) within which the law moves by less than `distance` (B,), from below.

    Every bound grows with the radius, so the place is found by bisection.
    """
    low = torch.zeros_like(distance, dtype=torch.float64)
    # Beyond 20 of the largest deviations no bound is below 1: the exact distance is 1 to all digits.
    high = 20 * noise.variances(z.flatten(1).double()).sum(1).sqrt()
    for _ in range(steps):
        middle = (low + high) / 2
        inside = total_variation_within(z, middle, noise) < distance
        low, high = torch.where(inside, middle, low), torch.where(inside, high, middle)
    return low
