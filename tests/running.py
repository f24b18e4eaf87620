"""Tiny runs that train in milliseconds, in this process or in one that can be killed, and how to compare them."""

from __future__ import annotations

import functools
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from nfm.data import DataSet, load
from nfm.method.presets import preset
from nfm.models import build
from nfm.results import read_rows
from nfm.train import checkpoint
from nfm.train.fit import Fit, fit
from nfm.train.folder import CHECKPOINTS
from nfm.train.optim import Optimizer
from nfm.train.progress import Moment, Silent
from nfm.train.schedule import Schedule

SOURCES = Path(__file__).parents[1] / "src"
# Threads change the last bits, so runs that are compared have the same number of them.
QUIET = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(SOURCES), "PYTHONWARNINGS": "default"}
PRELOADED = [  # torch imports its compiler with its first optimizer: seconds
    "pytest", "sklearn.datasets", "safetensors.torch", "torch._dynamo", "nfm.data", "nfm.models", "nfm.train.fit",
]  # fmt: skip
TINY = {"epochs": 2, "batch_size": 16, "log_every": 1, "checkpoint_seconds": 0.0}


@pytest.fixture
def in_memory() -> Iterator[Path]:
    """Return a folder in memory where there is one: runs here save after every step, and wait for the disk."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory, prefix="nfm-") as folder:
        yield Path(folder)


class Interrupted(Exception):
    """What a progress bar raises in the middle of a run."""


class InterruptAfter(Silent):
    """Let `steps` steps pass, and raise in the next; remember what was noted."""

    def __init__(self, steps: int | None = None) -> None:
        self.left, self.notes = steps, list[str]()

    def step(self, moment: Moment) -> None:
        if self.left == 0:
            raise Interrupted
        self.left = None if self.left is None else self.left - 1

    def note(self, text: str) -> None:
        self.notes.append(text)


@functools.cache
def digits(size: int = 48, validation: float = 0.02) -> DataSet:
    """Return a few digits."""
    return load("digits", subset=size, validation=validation)


def network(data: DataSet, name: str = "mlp", *, seed: int = 0, **options: Any) -> nn.Module:
    """Return a small network for `data`."""
    channels, _, size = data.shape
    smallest = {"mlp": {"units": 8}, "small_conv": {"width": 0.125}}[name]
    return build(
        name, num_classes=data.num_classes, in_channels=channels, image_size=size, mean=data.mean,
        std=data.std, seed=seed, **(smallest | options),
    )  # fmt: skip


def train(
    out: Path | str | None = None, *, scheme: str = "nfm", model: nn.Module | None = None,
    name: str = "mlp", options: Mapping[str, Any] | None = None, data: DataSet | None = None,
    optimizer: Any = None, schedule: Schedule | None = None, interrupt: int | None = None,
    progress: Silent | None = None, resume: bool = False, overwrite: bool = False, method: Any = None,
    augment: Any = None, criterion: Any = None, **settings: Any,
) -> Fit:  # fmt: skip
    """Train a tiny network; `interrupt` raises Interrupted after that many steps."""
    data = data or digits()
    settings = TINY | settings
    model = network(data, name, seed=settings.get("seed", 0), **(options or {})) if model is None else model
    return fit(
        model, method or preset(scheme, seed=settings.get("seed", 0)), data, augment=augment,
        optimizer=optimizer or Optimizer(lr=0.05), schedule=schedule or Schedule("one_cycle"), out=out,
        resume=resume, overwrite=overwrite, criterion=criterion,
        progress=progress or InterruptAfter(interrupt), **settings,
    )  # fmt: skip


def result_of(out: Path | str) -> dict[str, Any]:
    """Return all that a run leaves behind, byte for byte, but for what the clock says."""
    out = Path(out)
    found: dict[str, Any] = {"rows": (out / "rows.jsonl").read_bytes()}
    for kind in (checkpoint.LAST, checkpoint.BEST):
        for path in checkpoint.found_in(out / CHECKPOINTS, kind)[:1]:
            tensors, facts = checkpoint.load(path)
            found |= {f"{kind} {name}": value.numpy().tobytes() for name, value in tensors.items()}
            found |= {f"{kind} {name}": json.dumps(facts[name]) for name in facts if name != "made_by"}
    return found


def assert_same_result(one: Path | str, other: Path | str) -> None:
    first, second = result_of(one), result_of(other)
    assert first.keys() == second.keys()
    assert [name for name in first if first[name] != second[name]] == []


def assert_different_result(one: Path | str, other: Path | str) -> None:
    assert result_of(one) != result_of(other)


def newest(out: Path | str) -> Path:
    """Return the newest checkpoint of a run."""
    return checkpoint.found_in(Path(out) / CHECKPOINTS, checkpoint.LAST)[0]


def rows_of(out: Path | str, kind: str) -> list[dict[str, Any]]:
    return [row for row in read_rows(Path(out) / "rows.jsonl") if row["kind"] == kind]


def _serve(work: Any, args: Sequence[Any], settings: Mapping[str, Any]) -> None:
    torch.set_num_threads(1)
    work(*args, **settings)


def start(work: Any, *args: Any, **settings: Any) -> BaseProcess:
    """Start `work` in a process of its own, which is there in milliseconds and can be killed."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    process = context.Process(target=_serve, args=(work, args, settings))
    process.start()
    return process


def nfm(*arguments: str, cwd: Path, env: Mapping[str, str] | None = None, **options: Any) -> Any:
    """Run the command line in a process of its own, to its end."""
    return subprocess.run(
        [sys.executable, "-m", "nfm", *arguments], cwd=cwd, env={**QUIET, **(env or {})}, text=True,
        capture_output=True, timeout=600, check=False, **options,
    )  # fmt: skip
