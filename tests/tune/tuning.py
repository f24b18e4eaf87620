"""A tiny study that takes a second, and what of it must not depend on the clock."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from nfm.config.read import read_config
from nfm.config.schema import Config
from nfm.evaluate.noise import Clean, WhiteNoise
from nfm.evaluate.suites import Cell, cells
from nfm.results import Row, read_rows
from nfm.tune.study import tune

CELLS = (Cell(Clean(), 0.0), *cells(WhiteNoise(), [0.3]))
TINY = [
    "data.subset=48", "model.name=mlp", "model.options.units=8", "train.epochs=3", "train.batch_size=16",
    "train.checkpoint_seconds=0", "optimizer.lr=0.05",
]  # fmt: skip


def tiny(*overrides: str) -> Config:
    """Return the recipe of a tiny run: 3 steps an epoch, 3 epochs, a checkpoint after every step."""
    return read_config(None, [*TINY, *overrides])


def run_study(out: Path, *overrides: str, trials: int = 5, **settings: Any) -> list[Row]:
    return tune(tiny(*overrides), CELLS, trials=trials, out=out, device="cpu", **settings).rows


def results(rows: list[Row]) -> list[Row]:
    """Return rows without what the clock says."""
    return [{name: value for name, value in row.items() if name != "seconds"} for row in rows]


def rows_in(out: Path) -> list[Row]:
    return list(read_rows(out / "rows.jsonl"))


def study_in_its_own_process(out: Path, trials: int) -> None:
    import nfm.tune.history

    nfm.tune.history.AT_RANDOM = 2
    functools.partial(run_study, out, trials=trials)()
