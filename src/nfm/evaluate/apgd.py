"""Auto-PGD: momentum, and a step size that halves itself (Croce & Hein 2020, Algorithm 1).

"Reliable evaluation of adversarial robustness with an ensemble of diverse parameter-free attacks", ICML 2020.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from nfm.core.norms import Norm, spread
from nfm.errors import UsageError
from nfm.evaluate.attack import GRADIENT, PURPOSES, Attack
from nfm.evaluate.batchwise import choose
from nfm.evaluate.checks import Classifier, judge, predict
from nfm.evaluate.keyed import Stream
from nfm.evaluate.losses import Loss, ascend, cross_entropy, difference_of_logits_ratio, targeted_ratio

MOMENTUM = 0.75  # alpha, their Section 3.1
PROGRESS = 0.75  # rho: the share of steps that must gain, or the step is halved


@dataclass(frozen=True)
class APGD(Attack):
    """Auto-PGD on the cross-entropy (``ce``), the DLR loss, or the targeted DLR loss.

    ``dlr_targeted`` makes an attempt towards each of the `targets` likeliest wrong classes.
    """

    loss: Literal["ce", "dlr", "dlr_targeted"] = "ce"
    steps: int = 100
    restarts: int = 1
    targets: int = 9

    name: ClassVar[str] = "apgd"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.loss not in ("ce", "dlr", "dlr_targeted"):
            raise UsageError(f"apgd: expected loss 'ce', 'dlr' or 'dlr_targeted', got {self.loss!r}")
        if min(self.steps, self.restarts, self.targets) < 1:
            raise UsageError(f"apgd: expected steps, restarts and targets above 0, got {self}")

    def attempts(self) -> int:
        """Return one attempt a restart, and a target."""
        return self.restarts * (self.targets if self.loss == "dlr_targeted" else 1)

    def work(self) -> int:
        """Return the forward passes of one walk."""
        return GRADIENT * (self.steps + 1)

    def search(
        self, model: Classifier, x: Tensor, y: Tensor, stream: Stream, eps: float, attempt: int
    ) -> Tensor:
        """Return a point that is misclassified where one was met, else the one of the highest loss."""
        start = self.ball.start(x, stream, eps, purpose=attempt * PURPOSES)
        walk = _Walk(model, x, y, self.ball, eps, self._loss(model, x, y, attempt), start)
        marks = checkpoints(self.steps)
        for k in range(1, self.steps + 1):
            if bool(walk.fooled.all()):
                break
            walk.move(momentum=MOMENTUM if k > 1 else 1.0)
            if k in marks:
                walk.look_back(marks[k])
        return choose(walk.fooled, walk.result, walk.top_point)

    def _loss(self, model: Classifier, x: Tensor, y: Tensor, attempt: int) -> Loss:
        if self.loss == "ce":
            return lambda logits: cross_entropy(logits, y)
        if self.loss == "dlr":
            return lambda logits: difference_of_logits_ratio(logits, y)
        ranked = predict(model, x).scatter(1, y[:, None], -torch.inf).argsort(dim=1, descending=True)
        targets = ranked[:, min(attempt % self.targets, ranked.shape[1] - 2)]
        return lambda logits: targeted_ratio(logits, y, targets)


class _Walk:
    """One run: where each example is, its highest point so far, and its own step size."""

    def __init__(
        self, model: Classifier, x: Tensor, y: Tensor, ball: Norm, eps: float, loss: Loss, start: Tensor
    ) -> None:
        self.model, self.x, self.y, self.ball, self.eps, self.loss = model, x, y, ball, eps, loss
        self.point = self.previous = self.top_point = self.result = start
        self.value, self.gradient, logits = ascend(model, start, loss)
        self.top_value, self.top_gradient = self.value, self.gradient
        self.fooled = ~judge(logits, y)
        self.step = self.step_before = torch.full_like(self.value, 2 * eps)
        self.top_before, self.gains = self.value, torch.zeros_like(self.value)

    def move(self, *, momentum: float) -> None:
        """Take one step up, and keep what is higher than before or misclassified."""
        ahead = self.point + spread(self.step, self.x) * self.ball.steepest(self.gradient)
        pull = self.ball.project(ahead, self.x, self.eps) - self.point
        ahead = self.point + momentum * pull + (1 - momentum) * (self.point - self.previous)
        self.previous, self.point = self.point, self.ball.project(ahead, self.x, self.eps)
        before = self.value
        self.value, self.gradient, logits = ascend(self.model, self.point, self.loss)
        self.gains = self.gains + (self.value > before)
        self.result = choose(self.fooled, self.result, self.point)
        self.fooled = self.fooled | ~judge(logits, self.y)
        self._keep_highest()

    def _keep_highest(self) -> None:
        higher = self.value > self.top_value
        self.top_point = choose(higher, self.point, self.top_point)
        self.top_gradient = choose(higher, self.gradient, self.top_gradient)
        self.top_value = torch.where(higher, self.value, self.top_value)

    def look_back(self, width: int) -> None:
        """Halve the step and go back to the highest point where the last `width` steps gained too little."""
        slow = self.gains < PROGRESS * width
        stuck = (self.step == self.step_before) & (self.top_value == self.top_before)
        halve = slow | stuck
        self.step_before, self.top_before = self.step, self.top_value
        self.gains = torch.zeros_like(self.gains)
        self.step = torch.where(halve, self.step / 2, self.step)
        self.point = choose(halve, self.top_point, self.point)
        self.gradient = choose(halve, self.top_gradient, self.gradient)
        self.value = torch.where(halve, self.top_value, self.value)


def checkpoints(steps: int) -> dict[int, int]:
    """Return the steps at which the step size is looked at, each with the steps since the one before.

    p_0 = 0, p_1 = 0.22, p_(j+1) = p_j + max(p_j - p_(j-1) - 0.03, 0.06); their Section 3.1.

    >>> list(checkpoints(100))
    [22, 41, 57, 70, 80, 87, 93, 99]
    """
    marks, before, share, width = {}, 0, 0.22, 0.22
    while (mark := math.ceil(round(share * steps, 9))) <= steps:
        marks[mark] = mark - before
        before, width = mark, max(round(width - 0.03, 9), 0.06)
        share += width
    return marks
