"""Probabilistic robustness (SM E): a noisy site as a distribution over classes, and what a shift can change.

F(z) is the law of the class that the rest of a network tells of a noisy feature z; G(z) is its likeliest class.
Every class probability moves by at most the total variation between the laws of the two noisy features, so a lead
of more than twice that keeps G. Nothing is assumed of the network.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from nfm.core.binomial import check_alpha, clopper_pearson, lower_bound, upper_bound
from nfm.errors import NumericalError, ShapeError, UsageError
from nfm.randomness import fold, torch_generator
from nfm.theory.total_variation import SiteNoise
from nfm.theory.total_variation_ball import largest_radius

Rest = Callable[[Tensor], Tensor]  # features (n, ...) to scores (n, K)
BLOCK = 250  # noisy copies drawn from one key: how they are batched changes no draw


@dataclass(frozen=True)
class ClassCounts:
    """How often each class was told of one noisy feature."""

    counts: tuple[int, ...]

    @property
    def n(self) -> int:
        """The number of draws."""
        return sum(self.counts)

    @property
    def likeliest(self) -> int:
        """G: the class that was told most often, the first of several."""
        return max(range(len(self.counts)), key=lambda place: self.counts[place])

    def shares(self) -> list[float]:
        """Return the estimate of F, one number a class."""
        return [count / self.n for count in self.counts]

    def intervals(self, *, alpha: float = 0.05) -> list[tuple[float, float]]:
        """Return Clopper-Pearson intervals of F that hold for all classes at once, wrong with `alpha` at most."""
        return [clopper_pearson(hits, self.n, alpha=alpha / len(self.counts)) for hits in self.counts]


def sample_classes(rest: Rest, z: Tensor, noise: SiteNoise, *, n: int, key: int) -> ClassCounts:
    """Return what `rest` tells of `n` noisy copies of one feature `z` (any shape)."""
    if n < 1:
        raise UsageError(f"n: expected a number of draws from 1 up, got {n!r}")
    counts: Tensor | None = None
    for place, start in enumerate(range(0, n, BLOCK)):
        noisy = noise.sample(z, min(BLOCK, n - start), torch_generator(fold(key, place)))
        with torch.no_grad():
            scores = _checked(rest(noisy), len(noisy))
        told = torch.bincount(scores.argmax(1), minlength=scores.shape[1])
        counts = told if counts is None else counts + told
    assert counts is not None
    return ClassCounts(tuple(counts.tolist()))


def _checked(scores: Tensor, n: int) -> Tensor:
    if scores.dim() != 2 or len(scores) != n or scores.shape[1] < 2:
        raise ShapeError(f"expected scores of shape ({n}, classes), got {tuple(scores.shape)}")
    if not torch.isfinite(scores).all():
        raise NumericalError("the scores of a noisy feature are not finite; look at the weights")
    return scores


@dataclass(frozen=True)
class Lead:
    """A class, its probability from below and that of every other from above; both hold with 1 - alpha."""

    predicted: int
    first: float
    second: float

    @property
    def distance(self) -> float:
        """The total variation below which the class cannot change: half the lead, 0 where there is none."""
        return max(0.0, (self.first - self.second) / 2)


def find_lead(selection: ClassCounts, estimate: ClassCounts, *, alpha: float) -> Lead:
    """Return the lead of the class chosen by `selection` in the independent `estimate`.

    The risk alpha is shared: half for the first class, half for the upper bounds of all others together.
    """
    check_alpha(alpha)
    chosen, n = selection.likeliest, estimate.n
    first = lower_bound(estimate.counts[chosen], n, alpha=alpha / 2)
    most = max(count for place, count in enumerate(estimate.counts) if place != chosen)
    second = upper_bound(most, n, alpha=alpha / 2 / (len(estimate.counts) - 1))
    return Lead(chosen, first, min(second, 1 - first))


def certified_shift(z: Tensor, lead: Lead, noise: SiteNoise) -> float:
    """Return the l2 length of every shift of the feature `z` that cannot change G; 0 if none is certified."""
    wanted = torch.tensor([lead.distance], dtype=torch.float64)
    return float(largest_radius(z[None].cpu(), wanted, noise)) if lead.distance > 0 else 0.0


def length_ratio(p: float, d: int) -> float:
    """Return the largest |tau|_2 among all tau in R^d with |tau|_p = 1: 1, d^(1/2 - 1/p) or sqrt(d).

    >>> length_ratio(1, 100), length_ratio(4, 16), length_ratio(float("inf"), 100)
    (1.0, 2.0, 10.0)
    """
    if not p > 0 or d < 1:
        raise UsageError(f"expected p above 0 and d from 1 up, got {p!r} and {d!r}")
    return 1.0 if p <= 2 else float(d ** (0.5 - (0.0 if math.isinf(p) else 1 / p)))


def attack_factor(radius: float, p: float, d: int) -> float:
    """Return A_p = max(a, a^2) with a = length_ratio * radius: what bounds both |tau|_2 and its square."""
    a = length_ratio(p, d) * radius
    return max(a, a * a)


def attack_factor_printed(radius: float, p: float, d: int) -> float:
    """Return A_p as printed: the ratio is not squared with the radius, too small for p > 2 in high dimension."""
    return length_ratio(p, d) * (radius if radius < 1 else radius**2)


def printed_epsilon(
    radius: float, p: float, d: int, noise: SiteNoise, *, jacobian: float, norm: float, spread: float
) -> float:
    """Return eps_k of SM E's theorem as printed, with beta_k = 0: it is 0 without multiplicative noise.

    jacobian: norm of the averaged Jacobian of g_k; norm: |g_k(x)|; spread: the largest sqrt(sum rho_i^2).
    No beta_k above 0 is possible: g g^T has rank one, and diag(g)^2 has zeros behind a ReLU.
    """
    a = (
        attack_factor_printed(radius, p, d)
        * noise.mult**2
        / noise.add**2
        * (jacobian**2 + 2 * norm * jacobian)
    )
    b = jacobian * spread * radius * length_ratio(p, d) / noise.add
    return 4.5 * min(1.0, max(a, b))
