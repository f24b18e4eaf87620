"""One run of a study: train a third, look whether it is worth going on with, train the rest, measure."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from nfm.config.build import Parts, build_parts
from nfm.config.initial import read_weights
from nfm.config.runs import to_recipe
from nfm.config.schema import Config
from nfm.errors import DataError, NumericalError
from nfm.results import Row, write_atomically
from nfm.train.fit import fit
from nfm.train.state import load_weights
from nfm.tune.bench import Bench
from nfm.tune.dominance import COMPLETE, FAILED, PRUNED, Score, is_hopeless
from nfm.tune.progress import StudyProgress, Watch

RUNG = "rung.json"
MEASURED = "validation"
SHARE = 3  # the rung is after one part in so many of the epochs


class Dropped(Exception):
    """A trial that was not worth going on with at its rung."""


class Rung:
    """What a trial reached after a third of its epochs; on disk, for a run may go on after that."""

    def __init__(self, bench: Bench, folder: Path, rivals: Sequence[Score] | None) -> None:
        self.bench, self.file, self.rivals = bench, folder / RUNG, rivals
        self.epoch = max(1, bench.config.train.epochs // SHARE)

    @property
    def score(self) -> Score | None:
        """What was measured, or None before."""
        if not self.file.exists():
            return None
        try:
            return Score(**json.loads(self.file.read_bytes()))
        except (ValueError, TypeError) as error:
            raise DataError(f"{self.file}: expected accuracies, got {error}; remove the file") from None

    def look(self, parts: Parts) -> None:
        """Measure the network as it is, and end the run if it has no hope; at the end of a run there is no need."""
        if self.epoch == self.bench.config.train.epochs:
            return
        write_atomically(self.file, json.dumps(asdict(self.bench.measure(parts.model))).encode())
        self.decide()

    def decide(self) -> None:
        """End the run if what was measured has no hope; without rivals, never."""
        score = self.score
        if score is not None and self.rivals is not None and is_hopeless(score, self.rivals):
            raise Dropped


def run_trial(
    bench: Bench, name: str, config: Config, *, rivals: Sequence[Score] | None, progress: StudyProgress
) -> Row:
    """Return the row of a run: trained and measured, dropped at its rung, or failed; without rivals never dropped.

    A run that was interrupted goes on from its last checkpoint. The weights that are measured are those that
    `nfm evaluate` takes: the best by clean validation accuracy.
    """
    began = time.monotonic()
    folder = bench.folder / "trials" / name
    rung = Rung(bench, folder, rivals)
    parts = build_parts(config, bench.data)
    try:
        rung.decide()
        _train(bench, config, parts, folder, Watch(progress, rung.epoch, lambda: rung.look(parts)))
        load_weights(parts.model, read_weights(folder), str(folder))
        outcome = _outcome(COMPLETE, bench.measure(parts.model, save_to=folder / MEASURED))
    except Dropped:
        outcome = _outcome(PRUNED, rung.score)
    except NumericalError as error:
        outcome = {**_outcome(FAILED, None), "reason": str(error)}
    score = rung.score
    at_rung = None if score is None else {"epochs": rung.epoch, **asdict(score)}
    return {**outcome, "rung": at_rung, "run": f"trials/{name}", "seconds": time.monotonic() - began}


def _train(bench: Bench, config: Config, parts: Parts, folder: Path, watch: Watch) -> None:
    fit(
        parts.model, parts.method, parts.data, optimizer=config.optimizer, schedule=config.schedule,
        settings=config.train, augment=parts.augment, out=folder, resume=True, ranks=bench.ranks, progress=watch,
        recipe=to_recipe(config, parts.data),
    )  # fmt: skip


def _outcome(state: str, score: Score | None) -> Row:
    """Return the numbers of a row; a failed run has none."""
    nothing: Row = {"clean": None, "robust": None, "n": None, "cells": {}}
    return {"state": state, **(nothing if score is None else asdict(score))}


def rung_scores(rows: Sequence[Row]) -> list[Score]:
    """Return what the trials of `rows` reached at their rung."""
    names = Score.__dataclass_fields__
    return [Score(**{name: row["rung"][name] for name in names}) for row in rows if row["rung"]]
