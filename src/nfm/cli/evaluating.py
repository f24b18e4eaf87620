"""What ``nfm evaluate`` does once its flags are read."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from nfm.cli.candidates import Candidate
from nfm.data.examples import ExampleSet
from nfm.data.splits import balanced_subset
from nfm.errors import EnvironmentProblem, Stopped, UsageError
from nfm.evaluate.bundles import fitting
from nfm.evaluate.protocols import choose_protocol
from nfm.evaluate.report import Report
from nfm.evaluate.suites import Suite
from nfm.evaluate.sweep import Progress, evaluate
from nfm.randomness import fold
from nfm.results import write_atomically
from nfm.train.progress import choose_progress, seconds_left

ABOUT = "about.json"


@dataclass(frozen=True)
class Options:
    """How to measure, and where to keep it."""

    suite: str | None = "quick"
    more: Suite = ()  # cells beside the suite's
    protocol: str = "pixel"
    seed: int = 0
    batch_size: int = 250
    force: bool = False
    out: Path | None = None
    overwrite: bool = False
    name: str | None = None
    limit: int | None = None  # examples, as many of each class as can be; None: all


@dataclass(frozen=True)
class Work:
    """How much is done of an evaluation, in passes of an example, and what is being measured."""

    label: str
    step: int
    steps: int
    earlier: int = 0


def measure(candidate: Candidate, options: Options) -> tuple[Report, Path, list[str]]:
    """Measure `candidate`; return its report, where it is kept, and which cells of the suite were left out."""
    if candidate.flags and not options.force:
        raise UsageError(
            f"refused: {', '.join(candidate.flags)}; --force measures it all the same, with a flag in every row"
        )
    out = options.out or default_out(candidate, options)
    protocol = choose_protocol(options.protocol, candidate.model)
    examples = chosen_examples(candidate.data.test, options.limit)
    cells, left_out = fitting(options.suite, protocol, examples) if options.suite else ([], [])
    scheme = options.name or candidate.scheme
    tags = {"scheme": scheme, "train_seed": candidate.train_seed, "data": candidate.data.name}
    with (
        kept_in(out),
        watched(f"{scheme} on {candidate.data.name}") as progress,
    ):
        report = evaluate(
            candidate.model, examples, [*cells, *options.more], protocol=protocol, seed=options.seed,
            batch_size=options.batch_size, classes=candidate.data.num_classes, held_out=candidate.held_out,
            tags=tags | {"network": candidate.network}, flags=candidate.flags, force=options.force,
            progress=progress, save_to=out, overwrite=options.overwrite,
        )  # fmt: skip
        about = {"classes": candidate.data.classes, "network": candidate.network, "scheme": scheme}
        write_atomically(out / ABOUT, json.dumps(about, indent=1).encode())
    return report, out, left_out


def default_out(candidate: Candidate, options: Options) -> Path:
    """Return the folder of an evaluation that was given none: one for each protocol, data set, seed and limit."""
    words = ["evaluation", options.protocol, candidate.suffix, f"seed{options.seed}" if options.seed else ""]
    limited = [f"of{options.limit}"] if options.limit else []
    return candidate.home / "-".join(word for word in words + limited if word)


def chosen_examples(examples: ExampleSet, limit: int | None) -> ExampleSet:
    """Return all `examples`, or `limit` of them; those of a lower limit are among those of a higher one."""
    if limit is None or limit >= len(examples):
        return examples
    if limit < 1:
        raise UsageError(f"--limit: expected a number of examples from 1 up, got {limit}")
    return balanced_subset(examples, limit, key=fold("limit"))


@contextmanager
def kept_in(out: Path, *, what: str = "cells measured") -> Iterator[None]:
    """Let `out` be written to; say what is wrong with it, and what is kept where the work is interrupted."""
    try:
        yield
    except OSError as error:
        raise EnvironmentProblem(f"out: cannot write to {out}: {error.strerror or error}") from error
    except KeyboardInterrupt:
        raise Stopped(
            f"stopped; the {what} so far are kept in {out}, the same command goes on from there",
            signal.SIGINT,
        ) from None


@contextmanager
def watched(title: str) -> Iterator[Progress]:
    """Show a bar or lines while inside."""
    shown = choose_progress(describe=describe_briefly if sys.stderr.isatty() else describe)
    started = False

    def progress(label: str, done: int, total: int) -> None:
        nonlocal started
        if not started:
            shown.start(title, Work(label, 0, total))
            started = True
        shown.step(Work(label, done, total))

    try:
        yield progress
    finally:
        if started:
            shown.stop()


def describe(work: Work, seconds: float) -> str:
    """Return the share done, what is being measured and the time left as one line."""
    return f"{100 * work.step / work.steps:3.0f}%  {describe_briefly(work, seconds)}"


def describe_briefly(work: Work, seconds: float) -> str:
    """Return the same for a bar, which tells the share itself."""
    return f"{work.label}  {seconds_left(work, seconds)} left"
