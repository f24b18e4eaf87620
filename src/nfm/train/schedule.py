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
    ``one_cycle``: up to 1 over the first `rise` of training, then down to 0, both as cosines, while the
    momentum goes from the first of `momenta` to the second and back (Smith 2018); ``constant``.
    """

    name: str = "cosine"
    milestones: tuple[int, ...] = (100, 150, 180)  # of 200 epochs (docs/differences.md, row 14)
    gamma: float = 0.1
    warmup: float = 0.0
    rise: float = 0.3
    start: float = 0.04  # the factor a one-cycle schedule begins with
    momenta: tuple[float, float] = (0.95, 0.85)  # Smith 2018, section 4.3

    def __post_init__(self) -> None:
        SHAPES[self.name]
        if sorted(self.milestones) != list(self.milestones) or any(m <= 0 for m in self.milestones):
            raise UsageError(f"schedule.milestones: expected rising epochs from 1, got {self.milestones}")
        for field, low, high in (("gamma", 0, 1), ("rise", 0, 1), ("start", 0, 1), ("warmup", 0, math.inf)):
            value = getattr(self, field)
            if not (low <= value <= high and math.isfinite(value)):
                raise UsageError(f"schedule.{field}: expected a number from {low} to {high}, got {value!r}")
        if len(self.momenta) != 2 or not all(0 <= momentum < 1 for momentum in self.momenta):
            raise UsageError(f"schedule.momenta: expected two numbers from 0 to below 1, got {self.momenta}")

    def momentum(self, step: int, *, steps_per_epoch: int, epochs: int) -> float | None:
        """Return the momentum in `step`, or None where the optimizer's own stays."""
        if self.name != "one_cycle":
            return None
        warm = round(self.warmup * steps_per_epoch)
        edge, top = self.momenta
        return edge + (top - edge) * _height(
            self, max(step - warm, 0), max(epochs * steps_per_epoch - warm, 1)
        )

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
    height = _height(schedule, step, steps)
    rising = step < schedule.rise * steps
    return schedule.start + (1 - schedule.start) * height if rising else height


def _height(schedule: Schedule, step: int, steps: int) -> float:
    """Return how far up a one-cycle schedule is: 0 at both ends, 1 at the top."""
    top = schedule.rise * steps
    return 1 - _cosine(step / top) if step < top else _cosine((step - top) / max(steps - top, 1))
