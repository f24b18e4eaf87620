"""Learning-rate schedules: the factor of the base rate as a pure function of the share of training done."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from nfm.errors import UsageError
from nfm.registry import Registry


@dataclass(frozen=True)
class Schedule:
    """A schedule by name, with a linear warm-up of `warmup` epochs before it.

    ``step``: times `gamma` after each of `milestones` (epochs done); ``cosine``: to 0 over the epochs left;
    ``one_cycle``: up to 1 over the first `rise` of training, then down to 0, both as cosines; ``constant``.
    """

    name: str = "cosine"
    milestones: tuple[int, ...] = (100, 150, 180)  # the authors' recipe, of 200 epochs (ledger)
    gamma: float = 0.1
    warmup: float = 0.0
    rise: float = 0.3
    start: float = 0.04  # the factor a one-cycle schedule begins with

    def __post_init__(self) -> None:
        SHAPES[self.name]
        if sorted(self.milestones) != list(self.milestones) or any(m <= 0 for m in self.milestones):
            raise UsageError(f"schedule.milestones: expected rising epochs from 1, got {self.milestones}")
        for field, low, high in (("gamma", 0, 1), ("rise", 0, 1), ("start", 0, 1), ("warmup", 0, math.inf)):
            value = getattr(self, field)
            if not low <= value <= high:
                raise UsageError(f"schedule.{field}: expected a number from {low} to {high}, got {value!r}")

    def factor(self, step: int, *, steps_per_epoch: int, epochs: int) -> float:
        """Return the factor of the base rate in `step`, counted from 0."""
        warm = round(self.warmup * steps_per_epoch)
        if step < warm:
            return (step + 1) / warm
        return SHAPES[self.name](
            self, step - warm, max(epochs * steps_per_epoch - warm, 1), steps_per_epoch, warm
        )


Shape = Callable[[Schedule, int, int, int, int], float]
SHAPES: Registry[Shape] = Registry("schedule")


def _cosine(share: float) -> float:
    return 0.5 * (1 + math.cos(math.pi * share))


@SHAPES.register("constant")
def _constant(schedule: Schedule, step: int, steps: int, per_epoch: int, warm: int) -> float:
    return 1.0


@SHAPES.register("step")
def _milestones(schedule: Schedule, step: int, steps: int, per_epoch: int, warm: int) -> float:
    epochs_done = (step + warm) // per_epoch
    return schedule.gamma ** sum(epochs_done >= milestone for milestone in schedule.milestones)


@SHAPES.register("cosine")
def _down(schedule: Schedule, step: int, steps: int, per_epoch: int, warm: int) -> float:
    return _cosine(step / steps)


@SHAPES.register("one_cycle")
def _one_cycle(schedule: Schedule, step: int, steps: int, per_epoch: int, warm: int) -> float:
    top = schedule.rise * steps
    if step < top:
        return 1 - (1 - schedule.start) * _cosine(step / top)
    return _cosine((step - top) / max(steps - top, 1))
