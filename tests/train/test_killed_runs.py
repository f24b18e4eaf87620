"""Runs killed by SIGKILL at random moments: no checkpoint is torn, and the end is the same to the byte."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from nfm.data import CropFlip
from nfm.train import checkpoint
from nfm.train.folder import CHECKPOINTS, RunFolder
from nfm.train.optim import Optimizer
from running import (
    InterruptAfter,
    Interrupted,
    assert_different_result,
    assert_same_result,
    result_of,
    start,
    train,
)

LONG = {"epochs": 40, "scheme": "nfm"}  # 120 steps, a checkpoint after each


def assert_nothing_torn(out: Path) -> None:
    """Every checkpoint that can be seen is whole, and so are the rows it tells of."""
    for kind in (checkpoint.LAST, checkpoint.BEST):
        for path in checkpoint.found_in(out / CHECKPOINTS, kind):
            _, facts = checkpoint.load(path)
            if kind == checkpoint.LAST:
                assert (out / "rows.jsonl").stat().st_size >= facts["position"]["rows_size"]


def run_and_kill(out: Path, delay: float, **settings: Any) -> bool:
    """Go on with the run and kill it `delay` seconds after it took its folder; tell whether it was running."""
    process = start(train, out, resume=True, **settings)
    lock = out / ".lock"
    while process.is_alive() and f"process {process.pid} " not in (lock.read_text() if lock.exists() else ""):
        time.sleep(0.002)
    time.sleep(delay)
    process.kill()
    process.join()
    return process.exitcode == -signal.SIGKILL


def killed_often(folder: Path, kills: int, seed: int, **settings: Any) -> int:
    """Kill a run `kills` times, let it end, compare it; begin again when it ended too early."""
    moments = random.Random(seed)
    train(folder / "whole", **settings)
    done = runs = 0
    while done < kills:
        runs += 1
        cut = folder / f"cut{runs}"
        while done < kills and run_and_kill(cut, moments.uniform(0.0, 0.4), **settings):
            done += 1
            assert_nothing_torn(cut)
        train(cut, resume=True, **settings)
        assert_same_result(folder / "whole", cut)
        assert list((cut / CHECKPOINTS).glob(".*.tmp")) == []
    return done


@pytest.mark.parametrize("workers", [0, 2])
def test_a_killed_run_ends_as_if_never_killed(tmp_path: Path, workers: int) -> None:
    assert killed_often(tmp_path, 3, seed=workers, workers=workers, ema=0.9, **LONG) == 3


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    "settings",
    [
        {"scheme": "nfm"},
        {"scheme": "erm", "ema": 0.9},
        {"scheme": "manifold_mixup", "accumulate": 3, "optimizer": Optimizer("adamw", lr=1e-3)},
        {"scheme": "mixup", "name": "small_conv", "ema": 0.9, "augment": CropFlip(pad=1)},
    ],
    ids=lambda settings: settings["scheme"],
)
def test_a_run_survives_fifty_kills(tmp_path: Path, settings: dict[str, Any], workers: int) -> None:
    settings = LONG | {"epochs": 100} | settings
    assert killed_often(tmp_path, 50, seed=workers + 7, workers=workers, **settings) == 50


def test_rows_after_the_checkpoint_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill between rows and checkpoint leaves rows too many; the control keeps them."""
    train(tmp_path / "whole")
    for name in ("cut", "kept"):
        with pytest.raises(Interrupted):
            train(tmp_path / name, interrupt=3)
        with (tmp_path / name / "rows.jsonl").open("a") as file:
            file.write('{"kind": "step", "step": 99}\n{"kind": "st')
    train(tmp_path / "cut", resume=True)
    assert_same_result(tmp_path / "whole", tmp_path / "cut")
    (tmp_path / "kept" / "rows.jsonl").write_bytes(
        (tmp_path / "kept" / "rows.jsonl").read_bytes().removesuffix(b'{"kind": "st')
    )
    monkeypatch.setattr(RunFolder, "cut_rows", lambda self, size: None)
    train(tmp_path / "kept", resume=True)
    assert_different_result(tmp_path / "whole", tmp_path / "kept")


def test_a_stale_lock_and_drafts_are_swept(tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert run_and_kill(out, 0.05, **LONG)
    (out / ".run.json.1.tmp").write_bytes(b"half")
    (out / CHECKPOINTS).mkdir(exist_ok=True)
    (out / CHECKPOINTS / ".step-0000000003.json.1.tmp").write_bytes(b"half")
    (out / CHECKPOINTS / "step-0000000999.safetensors").write_bytes(b"a pair without its other half")
    bar = InterruptAfter(2)
    with pytest.raises(Interrupted):
        train(out, resume=True, progress=bar, **LONG)
    left = [file.name for file in out.rglob("*") if file.is_file()]
    assert not [name for name in left if name.endswith(".tmp") or "999" in name]


def test_another_seed_is_seen(tmp_path: Path) -> None:
    train(tmp_path / "one", seed=1)
    train(tmp_path / "two", seed=2)
    assert_different_result(tmp_path / "one", tmp_path / "two")
    assert len(result_of(tmp_path / "one")) > 10
