"""The two balls an attack may move in: projection, steepest direction, random start."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from nfm.registry import Registry

SLACK = 1e-6  # float32 rounding of a point on the surface


class Numbers(Protocol):
    """The random numbers of a batch: (B, *shape), a stream of its own for each purpose."""

    def uniform(self, shape: Sequence[int], *, purpose: int = 0) -> Tensor: ...  # on [0, 1)

    def normal(self, shape: Sequence[int], *, purpose: int = 0) -> Tensor: ...


class Norm(Protocol):
    """A norm on examples; every method treats the examples of a batch alone."""

    def size(self, change: Tensor) -> Tensor: ...  # (B,)

    def largest(self, x: Tensor) -> float: ...

    def project(self, point: Tensor, x: Tensor, eps: float) -> Tensor: ...

    def steepest(self, gradient: Tensor) -> Tensor: ...

    def start(self, x: Tensor, numbers: Numbers, eps: float, *, purpose: int) -> Tensor: ...


class Linf:
    """The largest change of a value."""

    def size(self, change: Tensor) -> Tensor:
        """Return max |change| of each example."""
        return change.flatten(1).abs().amax(1)

    def largest(self, x: Tensor) -> float:
        """Return the size beyond which an eps means nothing in [0, 1]."""
        return 1.0

    def project(self, point: Tensor, x: Tensor, eps: float) -> Tensor:
        """Return the nearest point in the ball around `x` and in [0, 1]."""
        return point.clamp(x - eps, x + eps).clamp_(0, 1)

    def steepest(self, gradient: Tensor) -> Tensor:
        """Return the direction of size 1 that gains most."""
        return gradient.sign()

    def start(self, x: Tensor, numbers: Numbers, eps: float, *, purpose: int) -> Tensor:
        """Return a point uniform in the ball, clipped to [0, 1]."""
        return numbers.uniform(x.shape[1:], purpose=purpose).mul_(2).sub_(1).mul_(eps).add_(x).clamp_(0, 1)


class L2:
    """The Euclidean length of the change of an example."""

    def size(self, change: Tensor) -> Tensor:
        """Return the length of each example's change."""
        return change.flatten(1).norm(dim=1)

    def largest(self, x: Tensor) -> float:
        """Return the diagonal of the cube [0, 1]^d."""
        return math.sqrt(x[0].numel())

    def project(self, point: Tensor, x: Tensor, eps: float) -> Tensor:
        """Return `point` drawn back into the ball around `x`, then into [0, 1] (a change only shrinks)."""
        change = point - x
        shrink = (eps / self.size(change).clamp(min=1e-12)).clamp(max=1)
        return (x + change * spread(shrink, x)).clamp_(0, 1)

    def steepest(self, gradient: Tensor) -> Tensor:
        """Return the gradient with length 1; a zero gradient stays zero.

        The squares of very small numbers are 0, and of very great ones infinite: such a gradient is brought near 1
        first, or the attack on a network that is very sure of itself would not move.
        """
        greatest = gradient.abs().flatten(1).amax(1)
        extreme = (greatest > 0) & ((greatest < 1e-12) | (greatest > 1e12))
        near = gradient / spread(torch.where(extreme, greatest, 1.0), gradient)
        return near / spread(self.size(near).clamp(min=1e-12), near)

    def start(self, x: Tensor, numbers: Numbers, eps: float, *, purpose: int) -> Tensor:
        """Return a point uniform in the ball (normal direction, radius eps * u**(1/d)), clipped to [0, 1]."""
        direction = self.steepest(numbers.normal(x.shape[1:], purpose=purpose))
        radius = eps * numbers.uniform((1,), purpose=purpose + 1)[:, 0] ** (1 / x[0].numel())
        return (x + direction * spread(radius, x)).clamp_(0, 1)


def spread(numbers: Tensor, like: Tensor) -> Tensor:
    """Return one number an example, (B,), shaped to be combined with `like` (B, ...)."""
    return numbers.view(-1, *(1 for _ in like.shape[1:]))


NORMS: Registry[Norm] = Registry("norm")
NORMS.add("linf", Linf())
NORMS.add("l2", L2())
