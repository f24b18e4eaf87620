"""The edges of training: odd sizes, settings out of range, and a run so long that it would show a leak."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from nfm.errors import EnvironmentProblem, UsageError
from nfm.method.presets import preset
from nfm.train import checkpoint
from nfm.train.optim import Optimizer
from nfm.train.settings import Settings
from running import InterruptAfter, Moment, digits, newest, start, train


class TestSizes:
    def test_no_epochs_make_a_valid_run(self, tmp_path: Path) -> None:
        made = train(tmp_path / "run", epochs=0)
        assert made.position.finished
        assert made.rows == []
        checkpoint.load(newest(tmp_path / "run"))

    @pytest.mark.parametrize("batch", [1, 2, 3, 7, 47, 48, 500])
    @pytest.mark.filterwarnings("ignore:the last batch")
    def test_any_batch_size_sees_each_example_once(self, batch: int) -> None:
        seen: list[int] = []
        data, scheme = digits(), preset("nfm")

        def counting(model: Any, x: Any, y: Any, **options: Any) -> Any:
            seen.append(len(x))
            return scheme(model, x, y, **options)

        train(data=data, method=counting, batch_size=batch, epochs=1)
        assert sum(seen) == len(data.train)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"seed": -1}, "seed: expected a whole number from 0 to 4294967295, got -1"),
        ({"seed": 2**32}, "seed"),
        ({"seed": 1.5}, "seed"),
        ({"seed": "abc"}, "seed"),
        ({"epochs": -1}, "epochs: expected a whole number of at least 0"),
        ({"epochs": 1.5}, "epochs"),
        ({"batch_size": 0}, "batch_size: expected a whole number of at least 1"),
        ({"batch_size": True}, "batch_size"),
        ({"accumulate": 0}, "accumulate"),
        ({"accumulate": 17, "batch_size": 16}, "accumulate: expected at most batch_size"),
        ({"workers": -1}, "workers"),
        ({"log_every": 0}, "log_every"),
        ({"clip": -1.0}, "clip"),
        ({"clip": float("inf")}, "clip"),
        ({"checkpoint_seconds": float("nan")}, "checkpoint_seconds"),
        ({"ema": 1.0}, "ema"),
        ({"ema": float("nan")}, "ema"),
        ({"label_smoothing": 1.0}, "label_smoothing"),
        ({"precision": "bfloat"}, "did you mean 'bfloat16'"),
        ({"epoch": 3}, "known settings"),
    ],
)
def test_bad_settings_are_refused(tmp_path: Path, settings: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        train(tmp_path / "run", **settings)
    assert not (tmp_path / "run").exists()


def test_settings_or_numbers() -> None:
    with pytest.raises(UsageError, match="got both"):
        train(settings=Settings())


def test_what_needs_another_machine_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentProblem, match="sync_batch_norm"):
        train(tmp_path / "run", sync_batch_norm=True)
    with pytest.raises(UsageError, match="no parameter fits"):
        train(tmp_path / "run", optimizer=Optimizer(rates={"nothing": 0.5}))
    assert not (tmp_path / "run").exists()


def soak(report: str, steps: int) -> None:
    """Write memory, open files and threads after each tenth of a long run."""

    class Count(InterruptAfter):
        def step(self, moment: Moment) -> None:
            if moment.step % (moment.steps // 10) == 0:
                pages = int(Path("/proc/self/statm").read_text().split()[1])
                lines.append(f"{pages * 4096} {len(os.listdir('/proc/self/fd'))} {threading.active_count()}")

    lines: list[str] = []
    train(
        f"{report}.run",
        epochs=steps // 3,
        progress=Count(),
        log_every=1000,
        checkpoint_seconds=5.0,
        workers=2,
    )
    Path(report).write_text("\n".join(lines))


@pytest.mark.slow
def test_a_long_run_does_not_grow(tmp_path: Path) -> None:
    process = start(soak, str(tmp_path / "report"), 10_000)
    process.join()
    memory, files, threads = zip(
        *(map(int, line.split()) for line in (tmp_path / "report").read_text().splitlines()), strict=True
    )
    thousands = 10_000 * 0.8 / 1000
    assert (memory[-1] - memory[1]) / thousands <= 2**20
    assert files[-1] <= files[1]
    assert threads[-1] <= threads[1]
