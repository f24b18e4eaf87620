"""Generalisation bounds (SM F): what each term is on a given sample, and what they say together.

The paper compares L_NFM + complexity + confidence - Q with L_std + complexity + confidence, and calls NFM's
better where Q > 0. But Q is L_NFM - L_std by its definition: both bounds are the same number (`with_nfm` and
`standard`). Its proof also takes Q, which depends on f, out of a supremum over f.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from nfm.errors import ShapeError, UsageError
from nfm.randomness import fold, torch_generator
from nfm.theory.moments import Estimate


@dataclass(frozen=True)
class GeneralizationBounds:
    """Two bounds of the expected loss, and whether they say anything: `span` is what the loss can be at most."""

    standard_loss: float
    nfm_loss: float
    complexity: float
    confidence: float
    span: float

    @property
    def q(self) -> float:
        """Q_eps = L_NFM - L_std: the regularisers of Theorem 1, remainder included."""
        return self.nfm_loss - self.standard_loss

    @property
    def standard(self) -> float:
        """L_std + 2 R_n + confidence."""
        return self.standard_loss + 2 * self.complexity + self.confidence

    @property
    def with_nfm(self) -> float:
        """L_NFM + 2 R_n + confidence - Q: the same number."""
        return self.nfm_loss + 2 * self.complexity + self.confidence - self.q

    @property
    def vacuous(self) -> bool:
        """Tell whether the bound is no less than what every loss is below anyway."""
        return self.standard >= self.span

    def __str__(self) -> str:
        verdict = "vacuous: it says nothing" if self.vacuous else "not vacuous"
        return (
            f"expected loss <= {self.standard:.4g} (L_std {self.standard_loss:.4g}, 2 R_n {2 * self.complexity:.4g}, "
            f"confidence {self.confidence:.4g}; Q {self.q:.4g} cancels), the loss is at most {self.span:.4g}: {verdict}"
        )


def generalization_bounds(
    *, standard_loss: float, nfm_loss: float, complexity: float, span: float, n: int, delta: float = 0.05
) -> GeneralizationBounds:
    """Return both bounds for a loss in [0, span] with probability 1 - delta over n examples."""
    confidence = mcdiarmid(span, n=n, delta=delta, form="standard")
    return GeneralizationBounds(standard_loss, nfm_loss, complexity, confidence, span)


CHANGES = {
    "printed": lambda n: 2 / n,  # both theorems
    "nfm": lambda n: (2 * n - 1) / n**2,  # 2n - 1 of the n^2 pairs hold the example
    "standard": lambda n: 1 / n,  # one of n terms
}


def mcdiarmid(span: float, *, n: int, delta: float, form: str = "printed") -> float:
    """Return the confidence term of a loss whose values span `span`, by McDiarmid's inequality.

    Exchanging one example changes L_std by span/n and L_NFM by span (2n - 1)/n^2. The paper prints 2 span/n for
    both: right for NFM to first order, twice too large for the standard loss.

    >>> round(mcdiarmid(1.0, n=100, delta=0.05), 4), round(mcdiarmid(1.0, n=100, delta=0.05, form="standard"), 4)
    (0.2448, 0.1224)
    """
    if form not in CHANGES:
        raise UsageError(f"form: expected {', '.join(CHANGES)}, got {form!r}")
    if not (0 < delta < 1 and n >= 1 and span >= 0):
        raise UsageError(
            f"expected n of 1 or more, 0 < delta < 1, span of 0 or more; got {n}, {delta}, {span}"
        )
    return span * CHANGES[form](n) * math.sqrt(n * math.log(1 / delta) / 2)


def finite_class_complexity(losses: Tensor, *, draws: int = 1000, seed: int = 0) -> Estimate:
    """Return the empirical Rademacher complexity of a finite class, losses [members, n]: E max_f mean(sign * loss).

    The class must have been chosen before the sample was seen, say the checkpoints of a run on other data.
    """
    if losses.ndim != 2 or 0 in losses.shape:
        raise ShapeError(f"expected losses [members, n], got shape {tuple(losses.shape)}")
    count = losses.shape[1]
    signs = _signs(draws, count, seed)
    found = (signs @ losses.double().T / count).amax(1)
    return Estimate(float(found.mean()), float(found.std()) / math.sqrt(draws))


def massart_bound(losses: Tensor) -> float:
    """Return Massart's bound of `finite_class_complexity`: max ||losses|| sqrt(2 ln members) / n."""
    members, count = losses.shape
    return float(losses.double().norm(dim=1).max()) * math.sqrt(2 * math.log(members)) / count


def linear_class_complexity(features: Tensor, radius: float, *, draws: int = 1000, seed: int = 0) -> Estimate:
    """Return the empirical Rademacher complexity of x -> w . x with ||w|| <= radius: E radius ||sum sign x|| / n.

    The supremum is exact, only the signs are sampled. A loss with slope at most 1 (logistic) has no more.
    """
    flat = features.flatten(1).double()
    found = radius * (_signs(draws, len(flat), seed) @ flat).norm(dim=1) / len(flat)
    return Estimate(float(found.mean()), float(found.std()) / math.sqrt(draws))


def norm_class_complexity(model: nn.Sequential, features: Tensor) -> float:
    """Return the bound of Golowich et al. 2018 (Theorem 1) for ReLU networks no greater than `model`.

    The class: bias-free, one output, as many layers, Frobenius norms at most those of `model`:
    max ||x|| (sqrt(2 ln 2 depth) + 1) prod ||W||_F / sqrt(n). It is vacuous for most trained networks.
    """
    layers = [module for module in model if isinstance(module, nn.Linear)]
    others = [module for module in model if not isinstance(module, nn.Linear | nn.ReLU | nn.Flatten)]
    if (
        others
        or not layers
        or any(layer.bias is not None for layer in layers)
        or layers[-1].out_features != 1
    ):
        raise UsageError(
            "expected a bias-free ReLU network with one output, nn.Sequential of Linear(bias=False) and ReLU; "
            "the bound is for no other class"
        )
    product = math.prod(float(layer.weight.detach().double().norm()) for layer in layers)
    size = float(features.flatten(1).double().norm(dim=1).max())
    return size * (math.sqrt(2 * math.log(2) * len(layers)) + 1) * product / math.sqrt(len(features))


def _signs(draws: int, count: int, seed: int) -> Tensor:
    if draws < 2:
        raise UsageError(f"draws: expected 2 or more (their spread is the standard error), got {draws}")
    generator = torch_generator(fold(seed, "rademacher complexity"))
    return 2.0 * torch.randint(2, (draws, count), generator=generator).double() - 1
