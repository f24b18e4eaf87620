"""What a person sees of a study: which trial, how it stands, and the time that all trials still take."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

from nfm.train.progress import Moment, choose_progress, seconds_left


@dataclass(frozen=True)
class Work:
    """How much is done of a study, in steps of training; a dropped trial counts as a whole one."""

    label: str
    step: int
    steps: int
    earlier: int = 0


class StudyProgress:
    """A bar or lines over all runs of a study."""

    def __init__(self, *, runs: int, done: int, steps: int) -> None:
        self._shown = choose_progress(describe=_describe_briefly if sys.stderr.isatty() else _describe)
        self._runs, self._done, self._steps = runs, done, steps
        self._earlier, self._label = done * steps, ""
        self._shown.start("tuning", self._work(0))

    def begin(self, label: str) -> None:
        """Tell which run is next."""
        self._label = label

    def step(self, moment: Moment) -> None:
        """Tell where that run stands."""
        self._shown.step(self._work(moment.step))

    def skip(self, steps: int) -> None:
        """Tell of steps that an earlier session did."""
        self._earlier += steps

    def end(self, text: str) -> None:
        """Tell what came out of that run."""
        self._done += 1
        self._shown.note(text)

    def note(self, text: str) -> None:
        """Tell something beside."""
        self._shown.note(text)

    def stop(self) -> None:
        """Take the bar away."""
        self._shown.stop()

    def _work(self, step: int) -> Work:
        done = self._done * self._steps + step
        return Work(self._label, done, self._runs * self._steps, self._earlier)


class Watch:
    """The progress of one run: passes on what `fit` tells, and calls `at_rung` once after `rung` epochs."""

    def __init__(self, study: StudyProgress, rung: int, at_rung: Callable[[], None]) -> None:
        self._study, self._rung, self._at_rung = study, rung, at_rung

    def start(self, title: str, moment: Moment) -> None:
        """Leave out what an earlier session did from the speed."""
        self._study.skip(moment.step)

    def step(self, moment: Moment) -> None:
        """Tell of a step; an exception of `at_rung` ends the run."""
        self._study.step(moment)
        if moment.step * moment.epochs == self._rung * moment.steps:
            self._at_rung()

    def note(self, text: str) -> None:
        """Pass on."""
        self._study.note(text)

    def stop(self) -> None:
        """Leave the bar of the study where it is."""


def _describe(work: Work, seconds: float) -> str:
    return f"{100 * work.step / work.steps:3.0f}%  {_describe_briefly(work, seconds)}"


def _describe_briefly(work: Work, seconds: float) -> str:
    return f"{work.label}  {seconds_left(work, seconds)} left"
