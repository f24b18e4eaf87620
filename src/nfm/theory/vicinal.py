"""Lemma 1: NFM as a random perturbation z + eps * e_NFM of features and y + eps * e_y of labels."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from nfm.core.draw import Choice, Draw
from nfm.errors import ShapeError, UsageError


@dataclass(frozen=True, eq=False)
class Perturbation:
    """e_NFM of a batch in its parts, each shaped as the features.

    `mixup` is (1 - weight)(z~ - z); `noise` is mult * z + add; `cross` is mult * mixup, which enters with
    one more eps. Levels are inside `mult` and `add`.
    """

    mixup: Tensor
    noise: Tensor
    cross: Tensor

    @property
    def first(self) -> Tensor:
        """The part of e_NFM that is left at eps = 0."""
        return self.mixup + self.noise

    def total(self, eps: float = 1.0) -> Tensor:
        """Return e_NFM = (1 + eps mult) * e_mixup + e_noise."""
        return self.first + eps * self.cross


def perturbation(
    z: Tensor, partner: Tensor, weight: Tensor, *, add: Tensor | None = None, mult: Tensor | None = None
) -> Perturbation:
    """Return e_NFM for features z [n, ...], partners [n] and weights [n] or []; noises carry their levels."""
    if partner.shape != (len(z),):
        raise ShapeError(f"expected {len(z)} partners, got shape {tuple(partner.shape)}")
    mixup = _rest(weight, z) * (z[partner] - z)
    zero = torch.zeros_like(z)
    noise = (zero if mult is None else mult.to(z) * z) + (zero if add is None else add.to(z))
    return Perturbation(mixup, noise, zero if mult is None else mult.to(z) * mixup)


def label_perturbation(y: Tensor, partner: Tensor, weight: Tensor) -> Tensor:
    """Return e_y = (1 - weight)(y~ - y) for targets y [n, K] (one-hot or soft)."""
    if not y.is_floating_point():
        raise ShapeError(f"expected floating-point targets (one-hot), got {y.dtype}")
    return _rest(weight, y) * (y[partner] - y)


def vicinal(z: Tensor, draw: Draw) -> Perturbation:
    """Return e_NFM of a step that was drawn: z + total(1.0) is what the network saw at the site."""
    if draw.choice is None:
        raise UsageError("expected the draw of a mixed step, got a plain one; it perturbs nothing")
    add, mult = noise_values(z, draw.choice)
    return perturbation(z, draw.partner, draw.weight, add=add, mult=mult)


def noise_values(z: Tensor, choice: Choice) -> tuple[Tensor, Tensor]:
    """Return the additive and the multiplicative noise that `choice` has for z, levels included.

    The operator is affine and leaves equal rows equal, so what it does to zeros and ones tells both.
    """
    noise = choice.noise
    plain = choice.again(noise=replace(noise, relative=False))
    add = plain.apply(torch.zeros_like(z))
    mult = plain.apply(torch.ones_like(z)) - add - 1
    return add * z.std(correction=0) if noise.relative else add, mult


def _rest(weight: Tensor, like: Tensor) -> Tensor:
    """Return 1 - weight, shaped to multiply `like`."""
    rest = (1 - weight.double()).to(like)
    return rest.reshape(-1, *[1] * (like.ndim - 1))
