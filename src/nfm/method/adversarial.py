"""Adversarial training (Madry et al. 2018): train on the worst pixels near each image that a few steps find."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from nfm.core.mixing import Criterion
from nfm.core.norms import NORMS
from nfm.core.streams import draw_values
from nfm.errors import ShapeError, UsageError
from nfm.method.gradients import Mode, check_mode, pixel_gradient, probing
from nfm.method.pixels import check_pixels
from nfm.method.roots import root_of
from nfm.method.settings import check_switch, is_number, is_whole
from nfm.randomness import fold


@dataclass(frozen=True)
class KeyedNumbers:
    """The random numbers of a batch of `size`, keyed by `key` and a purpose."""

    key: int
    size: int
    device: torch.device

    def uniform(self, shape: Sequence[int], *, purpose: int = 0) -> Tensor:
        """Return numbers on [0, 1)."""
        return self._draw("uniform", shape, purpose).add_(1).div_(2)

    def normal(self, shape: Sequence[int], *, purpose: int = 0) -> Tensor:
        """Return standard normal numbers."""
        return self._draw("gaussian", shape, purpose)

    def _draw(self, law: str, shape: Sequence[int], purpose: int) -> Tensor:
        return draw_values(law, (self.size, *shape), fold(self.key, purpose), self.device)


@dataclass(frozen=True, repr=False)
class Adversarial:
    """Projected gradient descent before each step: `steps` of `step` * eps up the loss, within eps of each image.

    eps is in pixels of [0, 1], in the `norm` l2 or linf; results are clipped to [0, 1]. The start is uniform in the
    ball. `mode` is the network's while it is attacked: ``eval`` by default, so that batch norm uses its running
    statistics and the attack never moves them (nor does it in ``train``, where the batch's own are used).
    """

    norm: Literal["l2", "linf"] = (
        "l2"  # the norm of the paper's comparison (supplement, adversarial training)
    )
    eps: float = 0.5
    steps: int = 7  # the paper, and Madry et al. 2018, Section 5 (CIFAR-10)
    step: float = 0.25  # of eps: 2/255 of 8/255 in Madry et al. 2018, Section 5
    random_start: bool = True
    mode: Mode = "eval"

    def __post_init__(self) -> None:
        _ = NORMS[str(self.norm)]
        check_mode(self.mode)
        check_switch("random_start", self.random_start)
        if not is_number(self.eps) or not 0 <= self.eps < math.inf:
            raise UsageError(f"eps: expected pixels of [0, 1], 0 or more, got {self.eps!r}")
        stepping = is_whole(self.steps) and self.steps >= 1
        if not stepping or not is_number(self.step) or not 0 < self.step < math.inf:
            raise UsageError(
                f"expected steps of at least 1 and a step above 0, got {self.steps!r}, {self.step!r}"
            )
        if self.steps * self.step < 1:
            raise UsageError(
                f"{self.steps} steps of {self.step:g} eps cannot reach the surface of the ball; expected "
                f"steps * step >= 1 (step {1 / self.steps:.3g} or more)"
            )

    def __repr__(self) -> str:
        start = "random start" if self.random_start else "no random start"
        return (
            f"adversarial({self.norm}, eps={self.eps:g}, {self.steps} steps of {self.step:g} eps, {start}, "
            f"network in {self.mode} mode)"
        )

    def scaled(self, factor: float) -> Adversarial:
        """Return the same attack with eps times `factor`."""
        return dataclasses.replace(self, eps=factor * self.eps)

    def check(self, model: nn.Module, x: Any) -> None:
        """Refuse what are no pixels in [0, 1], and an eps wider than all of them."""
        self.check_batch(x)

    def check_batch(self, x: Any) -> Tensor:
        """Return pixels in [0, 1]; refuse what are none, and an eps wider than all of them."""
        x = check_pixels(x, "adversarial", images=False)
        largest = NORMS[self.norm].largest(x)
        if self.eps > largest:
            raise ShapeError(
                f"adversarial: expected an {self.norm} eps up to {largest:.3g}, in pixels of [0, 1], got "
                f"{self.eps:g}; /255?"
            )
        return x

    def attack(self, model: nn.Module, x: Any, y: Any, *, criterion: Criterion, key: int) -> Tensor:
        """Return `x` within eps of itself, where the loss of `model` is higher."""
        x = self.check_batch(x)
        root, ball = root_of(model), NORMS[self.norm]
        centre = point = x.detach().float()
        if self.random_start:
            point = ball.start(centre, KeyedNumbers(key, len(x), x.device), self.eps, purpose=0)
        with probing(root, self.mode):
            for _ in range(self.steps if self.eps else 0):
                uphill = ball.steepest(pixel_gradient(root, point.to(x.dtype), y, criterion))
                point = ball.project(point + self.step * self.eps * uphill, centre, self.eps)
        return rounded_towards(x, point)


def rounded_towards(x: Tensor, point: Tensor) -> Tensor:
    """Return `point`, float32 in [0, 1], in the dtype of `x`, each value no farther from that of `x`."""
    rounded = point.to(x.dtype)
    if x.dtype not in (torch.float16, torch.bfloat16):
        return rounded
    change = rounded.float() - x.float()
    beyond = change.abs() > (point - x.float()).abs()
    # The bits of numbers of one sign are in the order of the numbers; the absolute value has no -0.
    nearer = (rounded.abs().view(torch.int16) - change.sign().to(torch.int16)).view(x.dtype)
    return torch.where(beyond, nearer, rounded)
