"""Schemes made of schemes: a sum of parts in one step, one of several by chance, and one for a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

from torch import nn

from nfm.core.draw import Draw
from nfm.core.mixing import Criterion
from nfm.errors import UsageError
from nfm.method.dry_run import Plan
from nfm.method.feature_mixup import NoisyFeatureMixup, Outcome
from nfm.method.label_smoothing import LabelSmoothing
from nfm.method.scheme import Method, Scheme, plain_outcome
from nfm.method.settings import is_number, is_whole
from nfm.randomness import fold, numpy_generator

Part = TypeVar("Part")


class Attacker(Protocol):
    """What changes a batch before the step: the first part of a sum."""

    def attack(self, model: nn.Module, x: Any, y: Any, *, criterion: Criterion, key: int) -> Any:
        """Return `x` changed for the worse."""

    def check(self, model: nn.Module, x: Any) -> None:
        """Refuse what cannot be attacked."""


class Sum(Scheme):
    """One step of several parts: attack the batch, train on it by `main`, with smoothed labels."""

    def __init__(
        self, main: Method, *, attacker: Attacker | None = None, smoothing: LabelSmoothing | None = None,
        seed: int = 0,
    ) -> None:  # fmt: skip
        super().__init__(seed)
        self.main, self.attacker, self.smoothing = main, attacker, smoothing

    def __repr__(self) -> str:
        parts = (self.attacker, self.main, self.smoothing)
        return " + ".join(repr(part) for part in parts if part is not None)

    def train(
        self, model: nn.Module, x: Any, y: Any, *, criterion: Criterion, step: int, draw: Draw | None
    ) -> Outcome:
        """Run the parts one after another."""
        if self.attacker is not None:
            x = self.attacker.attack(model, x, y, criterion=criterion, key=self.key(step, "attack"))
        smooth = criterion if self.smoothing is None else self.smoothing.smooth(criterion)
        return self.main(model, x, y, criterion=smooth, step=step, draw=draw)

    def check(self, model: nn.Module, x: Any) -> Plan:
        """Check every part, and return the plan of the main one."""
        if self.attacker is not None:
            self.attacker.check(model, x)
        return self.main.check(model, x)

    def scaled(self, factor: float) -> Sum:
        """Return the same sum with every level times `factor`; a part without levels stays as it is."""
        main, attacker, smoothing = _scaled_parts(self, (self.main, self.attacker, self.smoothing), factor)
        return Sum(main, attacker=attacker, smoothing=smoothing, seed=self.seed)

    @property
    def parts(self) -> tuple[Method, ...]:
        """The part that trains."""
        return (self.main,)


class OneOf(Scheme):
    """One of several schemes, drawn anew for each step, the same on all ranks."""

    def __init__(
        self, schemes: Sequence[Method], probabilities: Sequence[float] | None = None, *, seed: int = 0
    ) -> None:
        super().__init__(seed)
        self.schemes = tuple(schemes)
        self.probabilities = _check_probabilities(probabilities, len(self.schemes))

    def __repr__(self) -> str:
        options = zip(self.probabilities, self.schemes, strict=True)
        return f"{' | '.join(f'{share:g} {scheme!r}' for share, scheme in options)}; seed={self.seed}"

    def at(self, step: int) -> Method:
        """Return the scheme of `step`."""
        generator = numpy_generator(fold(self.seed, step, "which scheme"))
        return self.schemes[int(generator.choice(len(self.schemes), p=self.probabilities))]

    def train(
        self, model: nn.Module, x: Any, y: Any, *, criterion: Criterion, step: int, draw: Draw | None
    ) -> Outcome:
        """Run the scheme of `step`."""
        return self.at(step)(model, x, y, criterion=criterion, step=step, draw=draw)

    def check(self, model: nn.Module, x: Any) -> Plan:
        """Check every scheme, and return the plan of the first that acts at sites."""
        plans = [scheme.check(model, x) for scheme in self.schemes]
        return next((plan for plan in plans if plan.rows), plans[0])

    def scaled(self, factor: float) -> OneOf:
        """Return the same choice with every level times `factor`; a scheme without levels stays as it is."""
        return OneOf(_scaled_parts(self, self.schemes, factor), self.probabilities, seed=self.seed)

    @property
    def parts(self) -> tuple[Method, ...]:
        """The schemes to draw from."""
        return self.schemes


class Timed(Scheme):
    """A scheme from step `start` to before `end`, plain training outside; its levels rise over `ramp` steps."""

    def __init__(self, scheme: Method, *, start: int = 0, end: int | None = None, ramp: int = 0) -> None:
        super().__init__(getattr(scheme, "seed", 0))
        check_times(start, end, ramp)
        self.scheme, self.start, self.end, self.ramp = scheme, start, end, ramp
        if ramp:
            scaled(scheme, 1.0)  # refuse now what has no levels

    def __repr__(self) -> str:
        end = "the end" if self.end is None else self.end
        ramp = f", levels rising over {self.ramp} steps" if self.ramp else ""
        return f"({self.scheme!r}) from step {self.start} to {end}{ramp}"

    def at(self, step: int) -> Method | None:
        """Return the scheme of `step`, None for plain training."""
        if step < self.start or (self.end is not None and step >= self.end):
            return None
        risen = step - self.start
        return self.scheme if risen >= self.ramp else scaled(self.scheme, risen / self.ramp)

    def train(
        self, model: nn.Module, x: Any, y: Any, *, criterion: Criterion, step: int, draw: Draw | None
    ) -> Outcome:
        """Run what is due at `step`."""
        scheme = self.at(step)
        if scheme is None:
            return plain_outcome(model, x, y, criterion=criterion)
        return scheme(model, x, y, criterion=criterion, step=step, draw=draw)

    def check(self, model: nn.Module, x: Any) -> Plan:
        """Check the scheme."""
        return self.scheme.check(model, x)

    @property
    def parts(self) -> tuple[Method, ...]:
        """The scheme for a time."""
        return (self.scheme,)


def scaled(part: Part, factor: float) -> Part:
    """Return `part` with its levels times `factor`; refuse one without levels."""
    if not _has_levels(part):
        raise UsageError(f"expected a scheme with levels to put on a schedule, got {part!r}, which has none")
    return part.scaled(factor)  # type: ignore[attr-defined]


def _scaled_parts(whole: Method, parts: Sequence[Any], factor: float) -> list[Any]:
    if not any(map(_has_levels, parts)):
        raise UsageError(f"expected a scheme with levels to put on a schedule, got {whole!r}, which has none")
    return [scaled(part, factor) if _has_levels(part) else part for part in parts]


def _has_levels(part: Any) -> bool:
    silent = isinstance(part, NoisyFeatureMixup) and part.noise.silent
    return hasattr(part, "scaled") and not silent


def _check_probabilities(given: Sequence[float] | None, count: int) -> tuple[float, ...]:
    shares = tuple(given) if given is not None else (1 / count,) * count
    usable = len(shares) == count and all(is_number(share) and 0 <= share <= 1 for share in shares)
    if not usable or abs(sum(shares) - 1) > 1e-9:
        raise UsageError(
            f"expected {count} probabilities, one a scheme, 0 or greater and 1 in all, got "
            f"{', '.join(map(str, shares))}"
        )
    return shares


def check_times(start: int, end: int | None, ramp: int) -> None:
    """Refuse what are no steps, and a time that ends before it starts."""
    whole = all(is_whole(value) and value >= 0 for value in (start, 1 if end is None else end, ramp))
    if not whole or (end is not None and end <= start):
        raise UsageError(
            f"expected whole steps with 0 <= start < end and ramp >= 0, got start {start}, end {end}, ramp {ramp}"
        )
