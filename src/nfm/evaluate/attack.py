"""What every attack shares: checks of eps, restarts on what still stands, and a judge of the result.

The author of an attack writes one method, `search`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, final

from torch import Tensor

from nfm.core.norms import NORMS, SLACK, Norm
from nfm.errors import NumericalError, UsageError
from nfm.evaluate.checks import Classifier, judge, predict
from nfm.evaluate.keyed import Stream
from nfm.evaluate.losses import differentiate, margin
from nfm.evaluate.perturbation import Change, Unit, check_pixels

PURPOSES = 1 << 24  # random purposes an attempt may use
NEARBY = 8 / 255  # linf: how far from an example its gradient is looked at once more
GRADIENT = 3  # forward passes that a gradient costs, about


@dataclass(frozen=True)
class Attack(Change):
    """A worst-case change of the pixels within eps, for a model and the true labels.

    Pixels are in [0, 1] and the model owns its normalisation, so eps is always in pixels: 8/255 is 8/255.
    """

    norm: str = "linf"

    unit: ClassVar[Unit] = "deviation"

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = NORMS[self.norm]

    @final
    def __call__(
        self, model: Classifier, x: Tensor, y: Tensor, ids: Tensor, eps: float, *, seed: int
    ) -> Tensor:
        """Return `x` changed by at most `eps` so that `model` misclassifies as much of it as the attack can.

        What is misclassified already stays as it is. An attempt is judged by predicting its result again,
        and the ball and [0, 1] are checked on that result. eps=0 is the identity.
        """
        check_pixels(x, ids)
        eps = self.check_eps(eps, x)
        changed = x.clone()
        if eps == 0:
            return changed
        stream = self.stream(ids, eps, seed=seed)
        for attempt in range(self.attempts()):
            left = judge(predict(model, changed), y).nonzero()[:, 0]
            if len(left) == 0:
                break
            found = self.search(model, x[left], y[left], stream[left], eps, attempt)
            changed[left] = self._judged(found, x[left], eps)
        return changed

    def search(
        self, model: Classifier, x: Tensor, y: Tensor, stream: Stream, eps: float, attempt: int
    ) -> Tensor:
        """Return the result of one attempt on examples that are still classified right."""
        raise NotImplementedError

    def attempts(self) -> int:
        """Return how many attempts are made, each on what still stands."""
        return 1

    def passes(self) -> int:
        """Return about how many forward passes an example takes that stands to the end."""
        return 1 + self.attempts() * (1 + self.work())

    def work(self) -> int:
        """Return about how many forward passes one attempt takes."""
        raise NotImplementedError

    @property
    def ball(self) -> Norm:
        """The norm's geometry."""
        return NORMS[self.norm]

    def check_level(self, level: float) -> float:
        """Return `level`, an eps in pixels, as a float, or refuse it."""
        if not 0 <= level < math.inf:
            raise UsageError(f"{self.name}: expected an eps from 0 up, got {level!r}")
        if self.norm == "linf" and level > 1:
            raise UsageError(
                f"{self.name}: expected an eps up to 1, in pixels of [0, 1], got {level:g}; /255?"
            )
        return float(level)

    def check_eps(self, eps: float, x: Tensor) -> float:
        """Return `eps` as a float; refuse one that is wider than the cube of pixels."""
        eps, largest = self.check_level(eps), self.ball.largest(x)
        if eps > largest:
            raise UsageError(
                f"{self.name}: expected an {self.norm} eps up to {largest:.3g}, got {eps:g}; /255?"
            )
        return eps

    def _judged(self, found: Tensor, x: Tensor, eps: float) -> Tensor:
        outside = float(self.ball.size(found - x).max()) - eps
        low, high = (float(end) for end in found.aminmax())
        if not (outside <= SLACK * max(1.0, eps) and low >= 0 and high <= 1):
            raise NumericalError(
                f"{self.label}: left its bounds (eps exceeded by {outside:g}, pixels {low:g} to {high:g}): "
                "a fault of the attack"
            )
        return found


def parse_eps(text: str | float) -> float:
    """Return an eps in pixels from ``"8/255"``, ``"0.5"`` or a number.

    >>> parse_eps("8/255") == 8 / 255
    True
    """
    try:
        return float(Fraction(text)) if isinstance(text, str) else float(text)
    except (ValueError, ZeroDivisionError):
        raise UsageError(f"expected an eps such as 8/255 or 0.03, got {text!r}") from None


def gradient_faults(model: Classifier, x: Tensor, y: Tensor, ids: Tensor, *, seed: int) -> dict[str, Tensor]:
    """Return which examples have no gradient in the pixels that an attack can use: bool (B,), fault by fault.

    It is the margin's, which does not saturate as the cross-entropy does: an honest confident network has one.
    One that is not finite is looked for at a random point nearby, too, for an attack seldom stays at `x`.
    """
    nearby = NORMS["linf"].start(x, Stream.of(ids, seed, "gradient_faults"), NEARBY, purpose=0)
    here, there = (
        differentiate(model, point, lambda logits: margin(logits, y))[1].flatten(1) for point in (x, nearby)
    )
    finite = here.isfinite().all(1) & there.isfinite().all(1)
    return {"zero gradients": (here == 0).all(1), "NaN gradients": ~finite}
