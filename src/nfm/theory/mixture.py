"""D~: the law of the weight when the label is the example's own (auxiliary lemma, SM C).

Training with mixed labels and weight Beta(a, b) is training with the first label alone and a weight from
D~ = a/(a+b) Beta(a+1, b) + b/(a+b) Beta(b+1, a). The paper's text calls the mixture uniform; it is so at a = b only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from nfm.core.weights import check_shape, sample_beta
from nfm.randomness import fold, numpy_generator


@dataclass(frozen=True)
class WeightMixture:
    """D~ of the shapes `alpha` and `beta`; `alpha` 0 means weight 1: nothing is mixed.

    >>> WeightMixture(1.0, 1.0).mean, WeightMixture(1.0, 1.0).square
    (0.3333333333333333, 0.16666666666666666)
    """

    alpha: float
    beta: float

    def __post_init__(self) -> None:
        check_shape("alpha", self.alpha, zero=True)
        check_shape("beta", self.beta, zero=self.alpha == 0)

    @property
    def share(self) -> float:
        """The share of the first Beta law, a / (a + b)."""
        return self.alpha / (self.alpha + self.beta) if self.alpha else 1.0

    @property
    def mean(self) -> float:
        """E[1 - weight] = 2ab / ((a + b)(a + b + 1))."""
        return 2 * self.square

    @property
    def square(self) -> float:
        """E[(1 - weight)^2] = ab / ((a + b)(a + b + 1))."""
        if not self.alpha:
            return 0.0
        total = self.alpha + self.beta
        return self.alpha / total * self.beta / (total + 1)

    def density(self, weight: Tensor) -> Tensor:
        """Return the density at weights in (0, 1); with `alpha` 0 there is none, and this is 0 there."""
        weight = weight.double()
        if not self.alpha:
            return torch.zeros_like(weight)
        first = _beta_density(weight, self.alpha + 1, self.beta)
        second = _beta_density(weight, self.beta + 1, self.alpha)
        return self.share * first + (1 - self.share) * second

    def sample(self, size: int, key: int) -> Tensor:
        """Draw `size` weights [size], float64."""
        if not self.alpha:
            return torch.ones(size, dtype=torch.float64)
        first = sample_beta(self.alpha + 1, self.beta, size, fold(key, "first"))
        second = sample_beta(self.beta + 1, self.alpha, size, fold(key, "second"))
        chosen = numpy_generator(fold(key, "which")).random(size) < self.share
        return torch.where(torch.from_numpy(chosen), torch.from_numpy(first), torch.from_numpy(second))


def _beta_density(weight: Tensor, a: float, b: float) -> Tensor:
    constant = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    return (constant + (a - 1) * weight.log() + (b - 1) * torch.log1p(-weight)).exp()
