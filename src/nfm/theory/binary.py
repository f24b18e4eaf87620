"""A classifier as the paper's binary one: one number f for each example, and its gradient at a site."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nfm.randomness import fold, torch_generator
from nfm.theory.derivatives import SiteMap, site_map
from nfm.theory.losses import targets_of
from nfm.theory.soundness import check_sound

PLACES = 4  # random directions in which a ball is looked at, beside the gradient's two
TOLERANCE = 1e-3  # of the linear change


@dataclass(frozen=True, eq=False)
class BinaryMap:
    """f [n], labels y [n] in 0 and 1, and the gradient of f at the features of a site [n, ...].

    f is weights . outputs: the single output, or the difference of two. Of several, the true class over the
    best other one, with label 1.
    """

    places: SiteMap
    weights: Tensor
    f: Tensor
    y: Tensor
    gradient: Tensor

    @property
    def features(self) -> Tensor:
        """The features at the site, [n, ...]."""
        return self.places.features

    def __call__(self, h: Tensor) -> Tensor:
        """Return f [n] at other features; the other class stays the one it was."""
        return (self.weights * self.places(h)).sum(1)

    def is_linear_within(self, radius: Tensor, *, seed: int) -> Tensor:
        """Tell of each example [n] whether f changes by its gradient alone, as far as it was looked at."""
        fits = torch.ones_like(self.f, dtype=torch.bool)
        for direction in self._directions(seed):
            step = _along(radius, direction)
            predicted = (self.gradient * step).flatten(1).sum(1)
            found = self(self.features + step).detach() - self.f
            most = radius * self.gradient.flatten(1).norm(dim=1)
            rounding = 64 * torch.finfo(self.f.dtype).eps * self.f.abs()
            fits &= (found - predicted).abs() <= TOLERANCE * most + rounding
        return fits

    def _directions(self, seed: int) -> list[Tensor]:
        shape = self.features.shape
        drawn = [
            torch.randn(shape, generator=torch_generator(fold(seed, "ball", place)), dtype=torch.float64)
            for place in range(PLACES)
        ]
        return [self.gradient, -self.gradient, *(value.to(self.features) for value in drawn)]

    def ascend(self, radius: Tensor, *, steps: int) -> Tensor:
        """Return the f [n] of the greatest loss that projected gradient ascent finds within `radius` [n]."""
        sign = 1 - 2 * self.y
        shift = _along(radius, sign.view(-1, *[1] * (self.features.ndim - 1)) * self.gradient)
        worst = self.f
        for _ in range(steps):
            h = (self.features + shift).requires_grad_()
            f = self(h)
            (gradient,) = torch.autograd.grad((sign * f).sum(), h)
            worst = torch.where(sign * f.detach() > sign * worst, f.detach(), worst)
            shift = shift + _along(radius / 4, gradient)
            size = shift.flatten(1).norm(dim=1)
            shift = shift * (radius / positive(size)).clamp_max(1).view(-1, *[1] * (shift.ndim - 1))
        return worst


def binary_map(model: nn.Module, x: Any, y: Tensor, *, site: str) -> BinaryMap:
    """Return f, its labels and its gradient at `site`; refuse a bad site as `nfm.theory.expansion` does."""
    places = check_sound(site_map(model, x, site=site))
    outputs, y = places.outputs, y.to(places.outputs.device)
    targets = targets_of(y, outputs)
    weights, labels = _as_binary(outputs, targets)
    gradient = torch.cat([
        part.pull(weight)
        for part, weight in zip(places.chunks(places.batch), weights.split(places.batch), strict=True)
    ])  # fmt: skip
    return BinaryMap(places, weights, (weights * outputs).sum(1), labels, gradient)


def _as_binary(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return the weights of the outputs [n, K] that make f, and the labels [n] of f."""
    classes = outputs.shape[1]
    if classes == 1:
        return torch.ones_like(outputs), targets.squeeze(1)
    if classes == 2:
        return torch.tensor([-1.0, 1.0]).to(outputs).expand_as(outputs), targets[:, 1]
    best_other = outputs.masked_fill(targets.bool(), -torch.inf).argmax(1)
    weights = targets - F.one_hot(best_other, classes).to(outputs)
    return weights, torch.ones_like(outputs[:, 0])


def _along(length: Tensor, direction: Tensor) -> Tensor:
    """Return directions [n, ...] of the given lengths [n]."""
    size = positive(direction.flatten(1).norm(dim=1))
    return direction * (length / size).view(-1, *[1] * (direction.ndim - 1))


def positive(size: Tensor) -> Tensor:
    """Return sizes to divide by: 0 becomes the smallest number above it."""
    return size.clamp_min(torch.finfo(size.dtype).tiny)
