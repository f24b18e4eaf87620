"""Measure two ways of doing a thing by turns, and tell the median of their ratios with its spread."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import chain
from multiprocessing import get_context
from typing import Any, NamedTuple

from benchmarks.neighbours import Clock, disturbed_since


@dataclass(frozen=True)
class Ratio:
    """What `ours` costs in units of `reference`: the median over rounds, the quartiles, and the best of each.

    `floor` is where the 95% interval of the median begins: with what chance does in a run, it may be as low. Of
    fewer than six rounds it is the least ratio. `left_out` more rounds do not count: other machines disturbed them.
    """

    name: str
    median: float
    low: float
    high: float
    floor: float
    rounds: int
    ours: float
    reference: float
    unit: str = "s"
    left_out: int = 0

    @classmethod
    def of(
        cls, name: str, pairs: Sequence[tuple[float, float]], unit: str = "s", *, left_out: int = 0
    ) -> Ratio:
        """Return the ratio of pairs (ours, reference)."""
        ratios = sorted(a / b for a, b in pairs)
        quarter = len(ratios) // 4
        return cls(
            name, statistics.median(ratios), ratios[quarter], ratios[-1 - quarter], ratios[below_median(len(ratios))],
            len(pairs), min(a for a, _ in pairs), min(b for _, b in pairs), unit, left_out,
        )  # fmt: skip

    @property
    def count(self) -> str:
        """Return how many rounds count, and behind a plus how many more do not."""
        return f"{self.rounds} (+{self.left_out})" if self.left_out else str(self.rounds)

    def __str__(self) -> str:
        return (
            f"{self.name:<66} {self.median:6.3f}  [{self.low:.3f}, {self.high:.3f}]  n={self.count}  "
            f"{self.ours:.3g} {self.unit} against {self.reference:.3g} {self.unit}"
        )


def below_median(count: int) -> int:
    """Return the place, among `count` sorted values, of one that their law's median exceeds at 97.5%, or 0.

    Each value is below the median with probability 1/2, whatever its law, so how many are is binomial.

    >>> [below_median(count) for count in (3, 9, 30, 101)]
    [0, 1, 9, 40]
    """
    tail, place = 0.0, 0
    while (tail := tail + math.comb(count, place) / 2**count) <= 0.025:
        place += 1
    return max(place - 1, 0)


def seconds(work: Callable[[], object]) -> float:
    """Return how long `work` takes once."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def compare(
    name: str,
    ours: Callable[[], object],
    reference: Callable[[], object],
    *,
    rounds: int,
    best_of: int = 1,
    weight: float = 1.0,
) -> Ratio:
    """Return the ratio of one way to another, as `by_turns` measures it."""
    return next(compare_all({name: ours}, reference, rounds=rounds, best_of=best_of, weight=weight))


def compare_all(
    ours: Mapping[str, Callable[[], object]],
    reference: Callable[[], object],
    *,
    rounds: int,
    best_of: int = 1,
    weight: float = 1.0,
) -> Iterator[Ratio]:
    """Yield the ratios of some ways to another by name, as `by_turns` measures them.

    weight: how many times the work of `reference` lies in `ours`, where they are not of one size.
    """
    (*times, theirs), left_out = by_turns([*ours.values(), reference], rounds=rounds, best_of=best_of)
    for name, own in zip(ours, times, strict=True):
        pairs = [(mine / weight, other) for mine, other in zip(own, theirs, strict=True)]
        yield Ratio.of(name, pairs, left_out=left_out)


class Turns(NamedTuple):
    """The seconds of each way in each round that counts, and how many do not."""

    seconds: list[list[float]]
    left_out: int


def by_turns(works: Sequence[Callable[[], object]], *, rounds: int, best_of: int = 1) -> Turns:
    """Run all ways once to warm up, then by turns, the first place changing each round.

    best_of: how often a way is run in its turn; the best time counts, for whatever disturbs a run makes it longer.
    """

    def round_of(number: int) -> list[float]:
        places = range(len(works))
        order = [(number + place) % len(works) for place in places]
        taken = {which: min(seconds(works[which]) for _ in range(best_of)) for which in order}
        return [taken[which] for which in places]

    for work in works:
        work()
    return counted(round_of, rounds=rounds)


def counted(round_of: Callable[[int], list[float]], *, rounds: int) -> Turns:
    """Measure until `rounds` count; `round_of` tells the seconds of each way in the round of a number.

    A round in which other machines took much of the processors' time is left out and measured again, whatever its times
    are, but not more than a third of all rounds.
    """
    measured: list[list[float]] = []
    left_out = 0
    while len(measured) < rounds:
        clock = Clock.read()
        taken = round_of(len(measured))
        if left_out < rounds / 3 and disturbed_since(clock):
            left_out += 1
        else:
            measured.append(taken)
    return Turns([list(times) for times in zip(*measured, strict=True)], left_out)


def in_processes(
    count: int, measure: Callable[..., Turns], *arguments: Any, begin: Callable[[], object] | None = None
) -> Turns:
    """Return what `count` processes measure, one after the other, as one: in each of them memory lies elsewhere.

    begin: what each of them does first.
    """
    with ProcessPoolExecutor(
        1, mp_context=get_context("spawn"), max_tasks_per_child=1, initializer=begin
    ) as processes:
        measured = [processes.submit(measure, *arguments).result() for _ in range(count)]
    ways = zip(*(turns.seconds for turns in measured), strict=True)
    return Turns([list(chain(*way)) for way in ways], sum(turns.left_out for turns in measured))
