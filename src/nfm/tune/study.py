"""The study: a reference, the recipe's own settings, then proposals; every finished trial is kept at once."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nfm.config.build import build_parts
from nfm.config.schema import Config, MethodConfig
from nfm.errors import Stopped, UsageError
from nfm.evaluate.journal import Journal
from nfm.evaluate.subject import hash_examples
from nfm.evaluate.suites import Cell
from nfm.results import Row
from nfm.train.identity import IRRELEVANT
from nfm.train.ranks import joined
from nfm.tune.bench import Bench, make_bench
from nfm.tune.dominance import COMPLETE, mark_front
from nfm.tune.history import History, import_optuna
from nfm.tune.lock import LOCK, locked
from nfm.tune.progress import StudyProgress
from nfm.tune.space import Settings, Space, apply, find_space
from nfm.tune.trial import run_trial, rung_scores

HEAD = "study.json"
PLAIN = "erm"  # the reference
PLACES = ("root", "download")  # of the data: where it is changes no result


@dataclass(frozen=True)
class Study:
    """What a study made: its rows, the recipe it began with, what it measured, and where it is kept."""

    rows: list[Row]
    config: Config
    cells: tuple[Cell, ...]
    folder: Path


def tune(
    config: Config,
    cells: Sequence[Cell],
    *,
    trials: int,
    out: Path,
    prune: bool = True,
    device: str = "auto",
    overwrite: bool = False,
) -> Study:
    """Search the settings of the scheme of `config` on its validation examples, for `trials` trials in all.

    Trial 0 is the recipe's own setting. What is in `out` is gone on with: the same study, no trial lost; more
    trials than before are added to it. Without `prune` every trial is trained to its end. With `overwrite`, the
    study that is there is cleared away, after all that can be refused was.
    """
    import_optuna()
    if trials < 1:
        raise UsageError(f"trials: expected at least 1, got {trials}")
    with joined(device) as ranks:
        if ranks.world > 1:
            raise UsageError(f"tune: expected one process, got {ranks.world}; start it without torchrun")
        bench = make_bench(config, cells, out, ranks, prune=prune)
        space = find_space(config.method, build_parts(config, bench.data).model)
        build_parts(apply(config, space.start), bench.data)  # refuse settings that the scheme cannot take
        bench.rehearse()
        with locked(out):
            if overwrite:
                _clear(out)
            journal = Journal(out, HEAD, "study")
            _start(journal, _identity(bench, space))
            return Study(_search(bench, space, journal, trials), config, bench.cells, out)


def _clear(folder: Path) -> None:
    """Empty the folder of a study but for its lock; never one that holds something else."""
    for entry in list(folder.iterdir()) if (folder / HEAD).exists() else []:
        if entry.is_dir():
            shutil.rmtree(entry)
        elif entry.name != LOCK:
            entry.unlink()


def _start(journal: Journal, identity: Row) -> None:
    try:
        journal.start(identity)
    except UsageError as error:
        raise UsageError(f"{error}, or start anew with --overwrite") from None


def _identity(bench: Bench, space: Space) -> Row:
    """Return what must agree for trials to be of one study; how many there are to be is no part of it."""
    recipe = dataclasses.asdict(bench.config)
    for part, names in (("data", PLACES), ("train", IRRELEVANT)):
        recipe[part] = {name: value for name, value in recipe[part].items() if name not in names}
    identity = {
        "recipe": recipe, "space": dataclasses.asdict(space), "cells": [cell.label for cell in bench.cells],
        "train": hash_examples(bench.data.train), "validation": hash_examples(bench.data.validation),
        "prune": bench.prune, "device": bench.ranks.device.type,
    }  # fmt: skip
    return json.loads(json.dumps(identity))  # as it will be read back: lists for tuples


def _search(bench: Bench, space: Space, journal: Journal, trials: int) -> list[Row]:
    """Do what is missing; return the rows of all that was done."""
    history = History(bench.folder, space, seed=bench.config.train.seed)
    done = len(history.rows) + (history.reference is not None)
    train = bench.config.train
    steps = train.epochs * -(-len(bench.data.train) // train.batch_size)
    progress = StudyProgress(runs=max(trials + 1, done), done=done, steps=steps)
    try:
        if history.reference is None:
            history.set_reference(_reference(bench, progress))
        while len(history.rows) < trials:
            history.add(_next_trial(bench, history, progress, trials))
            _write(journal, history)
    except Stopped as stopped:
        raise Stopped(f"{stopped}; the same command goes on", stopped.exit_code - 128) from None
    finally:
        progress.stop()
    return _write(journal, history)


def _reference(bench: Bench, progress: StudyProgress) -> Row:
    """Train plainly, for the trials to be compared with."""
    progress.begin(PLAIN)
    config = dataclasses.replace(bench.config, method=MethodConfig(scheme=PLAIN))
    row = run_trial(bench, PLAIN, config, rivals=None, progress=progress)
    progress.end(f"{PLAIN}: {told(row)}")
    return {"kind": "reference", "scheme": PLAIN, "settings": {}, **row}


def _next_trial(bench: Bench, history: History, progress: StudyProgress, trials: int) -> Row:
    rows, settings = history.rows, history.propose()
    number = len(rows)
    label = f"trial {number} ({number + 1} of {trials})"
    progress.begin(label)
    rivals = rung_scores(rows) if number and bench.prune else None
    row = run_trial(
        bench, f"{number:03d}", apply(bench.config, settings), rivals=rivals, progress=progress
    )  # fmt: skip
    progress.end(f"{label}, {_settings_told(settings)}: {told(row)}")
    scheme = bench.config.method.scheme
    return {"kind": "trial", "trial": number, "scheme": scheme, "settings": settings, **row}


def _write(journal: Journal, history: History) -> list[Row]:
    """Write the rows of all that is done: the reference, then the trials."""
    rows = mark_front([*([history.reference] if history.reference else []), *history.rows])
    journal.rewrite(rows)
    return rows


def told(row: Row) -> str:
    """Return what came out of a run, in words."""
    if row["clean"] is None:
        return f"{row['state']} ({row['reason']})"
    numbers = f"{100 * row['clean']:.1f}% clean, {100 * row['robust']:.1f}% robust"
    dropped = "" if row["state"] == COMPLETE else f", dropped after epoch {row['rung']['epochs']}"
    return f"{numbers}{dropped}, {row['seconds']:.0f} s"


def _settings_told(settings: Settings) -> str:
    return ", ".join(
        f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in settings.items()
    )
