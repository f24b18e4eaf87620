"""What a person sees of a run: a bar on a terminal, plain lines elsewhere, nothing where nobody looks."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, TextIO


@dataclass(frozen=True)
class Moment:
    """Where a run stands: steps done and in all, the loss; steps done before this session, examples in it."""

    epoch: int
    epochs: int
    step: int
    steps: int
    loss: float
    examples: int
    probe: float | None = None
    earlier: int = 0


class Countable(Protocol):
    """What time left can be told of: steps done and in all, and those done before this session."""

    @property
    def step(self) -> int: ...

    @property
    def steps(self) -> int: ...

    @property
    def earlier(self) -> int: ...


Describe = Callable[[Any, float], str]  # where a run stands, seconds since its start -> one line


class Progress(Protocol):
    """Something that is told of each step and each epoch."""

    def start(self, title: str, moment: Moment) -> None: ...

    def step(self, moment: Moment) -> None: ...

    def note(self, text: str) -> None: ...

    def stop(self) -> None: ...


class Silent:
    """Show nothing."""

    def start(self, title: str, moment: Moment) -> None: ...

    def step(self, moment: Moment) -> None: ...

    def note(self, text: str) -> None: ...

    def stop(self) -> None: ...


def describe(moment: Moment, seconds: float) -> str:
    """Return epoch, loss, probe accuracy, speed and time left as one line."""
    rate = moment.examples / seconds if seconds > 0 else 0.0
    left = seconds_left(moment, seconds)
    probe = "" if moment.probe is None else f"  probe {100 * moment.probe:.1f}%"
    return (
        f"epoch {moment.epoch}/{moment.epochs}  step {moment.step}/{moment.steps}  loss {moment.loss:.4f}"
        f"{probe}  {rate:,.0f} examples/s  {left} left"
    )


def seconds_left(moment: Countable, seconds: float) -> str:
    """Return the time left at the speed so far, as ``1:02:03`` or ``2:03``."""
    done = moment.step - moment.earlier
    if done <= 0 or not seconds:
        return "-:--"
    left = int(seconds * (moment.steps - moment.step) / done)
    hours, minutes = left // 3600, left // 60 % 60
    return f"{hours}:{minutes:02d}:{left % 60:02d}" if hours else f"{minutes}:{left % 60:02d}"


@dataclass
class Lines:
    """Plain lines, at most one every `every` seconds."""

    stream: TextIO = field(default_factory=lambda: sys.stderr)
    every: float = 10.0
    describe: Describe = describe
    _began: float = 0.0
    _told: float = 0.0

    def start(self, title: str, moment: Countable) -> None:
        self._began = self._told = time.monotonic()
        self.note(title)

    def step(self, moment: Countable) -> None:
        now = time.monotonic()
        if now - self._told >= self.every:
            self._told = now
            self.note(self.describe(moment, now - self._began))

    def note(self, text: str) -> None:
        print(text, file=self.stream, flush=True)

    def stop(self) -> None: ...


class Bar:
    """A bar by rich, redrawn at most ten times a second."""

    def __init__(self, describe: Describe = describe) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TaskProgressColumn, TextColumn
        from rich.progress import Progress as RichProgress

        self._bar = RichProgress(
            TextColumn("[bold]{task.fields[title]}"), BarColumn(bar_width=24), TaskProgressColumn(),
            TextColumn("{task.description}"), console=Console(stderr=True), transient=True,
        )  # fmt: skip
        self._task: Any = None
        self._describe = describe
        self._began = self._told = 0.0

    def start(self, title: str, moment: Countable) -> None:
        self._began = time.monotonic()
        self._bar.start()
        self._task = self._bar.add_task("", total=moment.steps, completed=moment.step, title=title)

    def step(self, moment: Countable) -> None:
        now = time.monotonic()
        if now - self._told >= 0.1 or moment.step == moment.steps:
            self._told = now
            self._bar.update(
                self._task, completed=moment.step, description=self._describe(moment, now - self._began)
            )

    def note(self, text: str) -> None:
        self._bar.console.print(text, highlight=False, markup=False)

    def stop(self) -> None:
        self._bar.stop()


def choose_progress(stream: TextIO | None = None, describe: Describe = describe) -> Bar | Lines:
    """Return a bar if `stream` (standard error) is a terminal and rich is there, plain lines otherwise."""
    stream = sys.stderr if stream is None else stream
    if not stream.isatty():
        return Lines(stream, describe=describe)
    try:
        return Bar(describe)
    except (ImportError, RuntimeError):
        return Lines(stream, describe=describe)
