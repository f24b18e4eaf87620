"""What ``nfm theory`` does once its flags are read, and the meter that ``nfm train --theory`` takes along."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor

from nfm.cli.candidates import Request, find_candidate
from nfm.config.build import Parts
from nfm.config.initial import read_weights
from nfm.data import ExampleSet, to_unit
from nfm.errors import CheckpointError, UsageError
from nfm.method.sites import default_sites
from nfm.results import Row, read_rows
from nfm.theory.meter import ROWS, Meter, Watcher, Yardstick, measure
from nfm.train import checkpoint
from nfm.train.folder import CHECKPOINTS, IDENTITY
from nfm.train.state import load_weights

EXAMPLES = 64  # that a meter looks at


def measured_rows(
    runs: Sequence[Path], how: Yardstick, *, sites: Sequence[str] | None, examples: int, data_root: str | None
) -> list[Row]:
    """Return the rows of every run: those its meter wrote with the same yardstick, and its checkpoints, measured."""
    names = _names(runs)
    rows: list[Row] = []
    for folder, name in zip(runs, names, strict=True):
        if not (folder / IDENTITY).exists():
            raise CheckpointError(f"{folder}: expected the folder of a run of `nfm train`, got none")
        candidate = find_candidate(Request(str(folder), data_root=data_root))
        if candidate.flags:
            raise UsageError(f"{folder}: {', '.join(candidate.flags)}")
        sites = sites or default_sites(candidate.model)
        x, y = probe(candidate.data.train, examples)
        kept = [row for row in _kept(folder) if _fits(row, how, sites, len(x))]
        rows += [{**row, "run": name} for row in kept]
        known = {row["epoch"] for row in kept}
        for epoch, path in _checkpoints(folder):
            if epoch not in known:
                load_weights(candidate.model, read_weights(path), str(path))
                rows += [
                    {"run": name, "epoch": epoch, **row}
                    for row in measure(candidate.model, x, y, sites=sites, with_=how)
                ]
    return rows


def probe(examples: ExampleSet, count: int) -> tuple[Tensor, Tensor]:
    """Return the first examples as the network gets them, and their labels."""
    rows = torch.arange(min(count, len(examples)))
    return to_unit(examples.fetch(rows)), torch.as_tensor(examples.labels)[rows]


def training_meter(parts: Parts, out: Path, watcher: Watcher) -> Meter:
    """Return the meter that measures a run's network at its default sites as it trains."""
    x, y = probe(parts.data.train, EXAMPLES)
    device = next(parts.model.parameters()).device
    return Meter(
        parts.model,
        x.to(device),
        y.to(device),
        out / ROWS,
        watcher,
        default_sites(parts.model),
        with_=Yardstick(),
    )


def _names(runs: Sequence[Path]) -> list[str]:
    """Return the folders' own names, or their whole paths where two share one."""
    names = [folder.resolve().name for folder in runs]
    return names if len(set(names)) == len(names) else [str(folder) for folder in runs]


def _kept(folder: Path) -> Iterator[Row]:
    path = folder / ROWS
    return read_rows(path) if path.exists() else iter(())


def _fits(row: Row, how: Yardstick, sites: Sequence[str], count: int) -> bool:
    same = {**how.tags(), "n": count}
    return row["site"] in sites and all(row.get(name) == value for name, value in same.items())


def _checkpoints(folder: Path) -> list[tuple[float, Path]]:
    """Return the whole checkpoints of a run with the epoch each was made in, the earliest first."""
    where = folder / CHECKPOINTS
    paths = [path for kind in checkpoint.KEPT for path in checkpoint.found_in(where, kind)]
    pace = next((pace for path in paths if (pace := _steps_per_epoch(path))), None)
    found = {_step(path) / (pace or max(1, _step(path))): path.with_suffix(".safetensors") for path in paths}
    if not found:
        raise CheckpointError(f"{where}: expected a checkpoint, got none")
    return sorted(found.items())


def _step(path: Path) -> int:
    return int(path.name.rpartition("-")[2])


def _steps_per_epoch(path: Path) -> float | None:
    """Return what a checkpoint tells: steps done before its epoch over epochs done."""
    position = checkpoint.read_manifest(path)["facts"].get("position")
    if not position or not position["epoch"]:
        return None
    return (_step(path) - position["step"]) / position["epoch"]
