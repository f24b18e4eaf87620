"""Projected gradient descent (Madry et al. 2018) and its shortest form, FGSM (Goodfellow et al. 2015)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from nfm.errors import UsageError
from nfm.evaluate.attack import GRADIENT, PURPOSES, Attack
from nfm.evaluate.checks import Classifier
from nfm.evaluate.keyed import Stream
from nfm.evaluate.losses import ascend, cross_entropy


@dataclass(frozen=True)
class PGD(Attack):
    """`steps` of size `step` * eps up the cross-entropy, each projected; the last point is the result.

    A random start is uniform in the ball. `restarts` beyond the first are run on what still stands.
    """

    steps: int = 20
    step: float = 0.25  # of eps
    random_start: bool = True
    restarts: int = 1

    name: ClassVar[str] = "pgd"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.steps < 1 or self.restarts < 1 or not self.step > 0:
            raise UsageError(f"{self.name}: expected steps, restarts and step above 0, got {self}")
        if self.steps * self.step < 1:
            raise UsageError(
                f"{self.name}: {self.steps} steps of {self.step:g} eps cannot reach the surface of the ball; "
                f"expected steps * step >= 1 (step {1 / self.steps:.3g} or more)"
            )
        if self.restarts > 1 and not self.random_start:
            raise UsageError(f"{self.name}: restarts without a random start repeat the same walk")

    def attempts(self) -> int:
        """Return the number of restarts."""
        return self.restarts

    def work(self) -> int:
        """Return the forward passes of one walk."""
        return GRADIENT * self.steps

    def search(
        self, model: Classifier, x: Tensor, y: Tensor, stream: Stream, eps: float, attempt: int
    ) -> Tensor:
        """Return the end of one walk."""
        point = self.ball.start(x, stream, eps, purpose=attempt * PURPOSES) if self.random_start else x
        for _ in range(self.steps):
            _, gradient, _ = ascend(model, point, lambda logits: cross_entropy(logits, y))
            point = self.ball.project(point + self.step * eps * self.ball.steepest(gradient), x, eps)
        return point


@dataclass(frozen=True)
class PGD7(PGD):
    """The paper's attack: 7 iterations. It tells no step and no start; these are Madry's (eps/4, random)."""

    steps: int = 7

    name: ClassVar[str] = "pgd7"


@dataclass(frozen=True)
class FGSM(PGD):
    """One step of size eps from the example itself."""

    steps: int = 1
    step: float = 1.0
    random_start: bool = False

    name: ClassVar[str] = "fgsm"
