"""Theorem 1: the NFM loss at one site is the standard loss plus regularisers, to second order in eps."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from nfm.core.noise import Noise
from nfm.errors import UsageError
from nfm.theory.curvature_terms import CurvatureTerms, curvature_terms
from nfm.theory.derivatives import site_map
from nfm.theory.gradient_terms import GradientTerms, gradient_terms
from nfm.theory.moments import Estimate, NoiseMoments
from nfm.theory.monte_carlo import sampled_loss
from nfm.theory.soundness import check_sound


@dataclass(frozen=True)
class Regularisers:
    """Every term of Theorem 1 at one site, and the levels that multiply the noise terms."""

    first: GradientTerms
    second: CurvatureTerms
    add: float
    mult: float

    @property
    def r2_total(self) -> float:
        """R2~ = R2 + add^2 R2_add + mult^2 R2_mult."""
        first = self.first
        return first.r2 + self.add**2 * first.r2_add + self.mult**2 * first.r2_mult

    @property
    def r3_total(self) -> Estimate:
        """R3~ = R3 + add^2 R3_add + mult^2 R3_mult."""
        terms = (
            self.second.r3,
            self.second.r3_add.times(self.add**2),
            self.second.r3_mult.times(self.mult**2),
        )
        return Estimate(sum(term.value for term in terms), math.hypot(*(term.error for term in terms)))

    def approximation(self, eps: float) -> Estimate:
        """Return L_std + eps R1 + eps^2 (R2~ + R3~)."""
        r3 = self.r3_total
        exact = self.first.standard + eps * self.first.r1 + eps**2 * self.r2_total
        return Estimate(exact + eps**2 * r3.value, eps**2 * r3.error)


@dataclass(frozen=True)
class Expansion:
    """Theorem 1 measured: the terms, their sum, the sampled loss of the auxiliary lemma, and the remainder."""

    site: str
    eps: float
    terms: Regularisers
    approximation: Estimate
    loss: Estimate
    remainder: Estimate

    def rows(self) -> dict[str, Estimate]:
        """Return every number by its name in docs/theory.md."""
        first, second = self.terms.first, self.terms.second
        exact = {
            "L_std": first.standard, "R1": first.r1, "R1_printed": first.r1_printed, "R2": first.r2,
            "R2_add": first.r2_add, "R2_mult": first.r2_mult,
        }  # fmt: skip
        return {
            **{name: Estimate(value) for name, value in exact.items()}, "R3": second.r3,
            "R3_add": second.r3_add, "R3_mult": second.r3_mult, "approximation": self.approximation,
            "loss": self.loss, "remainder": self.remainder,
        }  # fmt: skip

    def __str__(self) -> str:
        lines = [f"site {self.site!r}, eps {self.eps:g}, n = {self.terms.first.n}"]
        return "\n".join([*lines, *(f"  {name:<14}{value}" for name, value in self.rows().items())])


def expansion(
    model: nn.Module,
    x: Any,
    y: Tensor,
    *,
    site: str,
    noise: Noise,
    alpha: float = 1.0,
    beta: float | None = None,
    eps: float = 1.0,
    probes: int = 16,
    exact: bool = False,
    draws: int = 32,
    seed: int = 0,
) -> Expansion:
    """Expand the NFM loss of `model` on `x`, labels `y` [n], at `site`; `beta` is `alpha` unless told.

    Cross-entropy for several outputs, the logistic loss for one. R1 and R2 are exact; R3 takes `probes`
    Hutchinson probes, or is `exact` for small features; the loss is sampled by `draws` passes.
    """
    if not 0 <= eps < math.inf:
        raise UsageError(f"eps: expected a finite number, 0 or greater, got {eps!r}")
    beta = alpha if beta is None else beta
    places = check_sound(site_map(model, x, site=site))
    law = NoiseMoments.of(noise, places.features)
    terms = Regularisers(
        gradient_terms(places, y, noise=noise, alpha=alpha, beta=beta),
        curvature_terms(
            places, y, noise=noise, alpha=alpha, beta=beta, probes=probes, exact=exact, seed=seed
        ),
        law.add,
        law.mult,
    )
    sampled = sampled_loss(places, y, noise=noise, alpha=alpha, beta=beta, eps=eps, draws=draws, seed=seed)
    return Expansion(site, eps, terms, terms.approximation(eps), sampled.loss, sampled.remainder)
