"""The random choices of one step: made before the forward pass, told to whoever needs them after it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from nfm.core import traced
from nfm.core.arguments import Arguments, Numbers
from nfm.core.mixing import Pairing, mix_targets, partners_of, soft_targets
from nfm.core.noise import Noise
from nfm.core.operator import pairing_of, run_mix_noise, unmixed
from nfm.core.receipts import Receipt
from nfm.core.weights import weight_a_key
from nfm.randomness import fold


def weights_of(keys: Sequence[int], alpha: float, beta: float, *, dominant: bool) -> list[float]:
    """Return the one weight of the batch that belongs to each of the keys of choices."""
    return weight_a_key(alpha, beta, [fold(key, "weight") for key in keys], dominant=dominant).tolist()


class Choice:
    """What was chosen for one step before the size of the batch is known: site, key and numbers.

    `weight` None is drawn from the key, and so is a pairing that was not drawn ahead (`drawn`). `forced` mixes in
    evaluation mode and without gradients too. `view` changes the noise and keeps partners and weights, for other views
    of the same batch.
    """

    by_shape = False  # what is drawn depends on the feature's shape

    def __init__(
        self, site: str, *, key: int, step: int, alpha: float, beta: float, per_sample: bool, dominant: bool,
        noise: Noise, weight: float | None = None, drawn: Pairing | None = None, forced: bool = False, view: int = 0,
    ) -> None:  # fmt: skip
        self.site, self.step, self.forced, self.view = site, step, forced, view
        self.per_sample, self.dominant, self.noise = per_sample, dominant, noise
        if weight is None:
            (weight,) = weights_of([key], alpha, beta, dominant=dominant)
        noise_key = 0 if noise.silent else fold(key, "noise", view)
        numbers = Numbers(weight, alpha, beta, *noise.scaled_levels(noise_key))
        self.arguments = Arguments.of(numbers, pairing=key, noise=noise_key, receipt=Receipt(), drawn=drawn)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Give a copy a serial number and a receipt of its own, which goes on from that of the original."""
        vars(self).update(state)
        self.arguments = self.arguments.again()

    def again(self, *, forced: bool = False, view: int | None = None, noise: Noise | None = None) -> Choice:
        """Return the same choice for another forward pass, with a receipt of its own."""
        numbers, keys = self.arguments.numbers, self.arguments.keys
        return type(self)(
            self.site, key=keys.pairing, step=self.step, alpha=numbers.alpha, beta=numbers.beta,
            per_sample=self.per_sample, dominant=self.dominant, noise=noise or self.noise,
            weight=numbers.weight, forced=forced, view=self.view if view is None else view,
        )  # fmt: skip

    @classmethod
    def prepare(
        cls, key: int, numbers: tuple[float, float, float], pairing: Pairing, shape: tuple[int, ...]
    ) -> None:
        """Make what a choice of `key` with one weight a batch asks of its pairing, and what else it remembers.

        numbers: weight, alpha and beta; shape: that of the feature, if `by_shape` and if it is known.
        """
        _ = pairing.both, pairing.shares

    def ready(self) -> Self:
        """Make the tensors that a compiled graph will read; return the choice."""
        _ = self.arguments.tensors
        return self

    @property
    def uses(self) -> int:
        """Return how many forward passes this choice met; recomputations count too."""
        return self.arguments.receipt.runs

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of the feature that this choice met, () before it did."""
        return self.arguments.receipt.shape

    def apply(self, x: Tensor, stream: int = 0) -> Tensor:
        """Return `x` mixed and perturbed; `stream` tells apart the tensors of one site."""
        noise = self.noise
        if not x.is_cpu and torch.compiler.is_compiling():
            return traced.mix_noise(
                x, *self.arguments.tensors, noise,
                per_sample=self.per_sample, dominant=self.dominant, stream=stream,
            )  # fmt: skip
        return run_mix_noise(
            x, self.arguments, self.per_sample, self.dominant, noise.add_law, noise.mult_law,
            noise.granularity, noise.sparsity, noise.relative, stream,
        )  # fmt: skip

    def draw(self, size: int) -> Draw:
        """Return what this choice means for a batch of `size`."""
        pairing = pairing_of(self.arguments, size, per_sample=self.per_sample, dominant=self.dominant)
        return Draw(site=self.site, step=self.step, pairing=pairing, choice=self)


@dataclass(frozen=True, eq=False)
class Draw:
    """All random choices of one step for one batch, and what other losses need of them.

    `pairing` is shared by all who ask for it and to be read only; `partner` and `weight` are copies.
    """

    site: str
    step: int
    pairing: Pairing
    choice: Choice | None = None

    @classmethod
    def plain(cls, size: int, *, site: str = "none", step: int = -1) -> Draw:
        """Return the draw of a forward pass in which nothing was mixed."""
        return cls(site=site, step=step, pairing=unmixed(size))

    @property
    def weight(self) -> Tensor:
        """The part of the example itself (lambda in the paper): a number [], or one an example [n]."""
        return self.pairing.weight.clone()

    @property
    def partner(self) -> Tensor:
        """The permutation [n]: example i was mixed with example partner[i]."""
        return self.pairing.partner.clone()

    @property
    def levels(self) -> tuple[float, float]:
        """The additive and the multiplicative noise level of this batch, scale law included."""
        if self.choice is None:
            return 0.0, 0.0
        return self.choice.arguments.numbers[3:]

    def pairs(self, y: Any) -> tuple[Any, Any, Tensor]:
        """Return (y, y[partner], weight), for any loss of your own."""
        return y, partners_of(y, self.pairing), self.weight

    def soft_targets(self, y: Tensor, num_classes: int) -> Tensor:
        """Return the mixed one-hot labels [n, num_classes]: what cross-entropy takes as probabilities."""
        return soft_targets(y, num_classes, self.pairing)

    def mix_targets(self, y: Tensor) -> Tensor:
        """Return mixed floating-point targets: regression values, multi-hot labels, probabilities."""
        return mix_targets(y, self.pairing)
