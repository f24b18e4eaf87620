"""SIGTERM and SIGINT: the step is finished, the state saved, the exit code told, and nothing is lost."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from nfm.cli import main
from nfm.errors import Stopped
from nfm.method.presets import preset
from nfm.train import accuracy, checkpoint
from nfm.train import loop as loop_module
from nfm.train.signals import CAUGHT, StopFlag
from running import (
    QUIET,
    InterruptAfter,
    Moment,
    assert_different_result,
    assert_same_result,
    newest,
    start,
    train,
)

SETTINGS: dict[str, Any] = {"scheme": "nfm", "checkpoint_seconds": 60.0, "accumulate": 3}


def raise_signal(number: int = signal.SIGTERM) -> None:
    os.kill(os.getpid(), number)


class SignalAt(InterruptAfter):
    """Get a signal right after step `step`."""

    def __init__(self, step: int, number: int = signal.SIGTERM) -> None:
        super().__init__()
        self.at, self.number = step, number

    def step(self, moment: Moment) -> None:
        if moment.step == self.at:
            raise_signal(self.number)


class SignallingMethod:
    """A scheme during whose forward pass of one step a signal comes: between the parts of a batch."""

    def __init__(self, micro: int) -> None:
        self.inner, self.micro = preset("nfm"), micro

    def __repr__(self) -> str:
        return "SignallingMethod"

    def __call__(self, model: Any, x: Any, y: Any, *, criterion: Any, step: int) -> Any:
        if step == self.micro:
            raise_signal()
        return self.inner(model, x, y, criterion=criterion, step=step)


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    train(tmp_path / "whole", **SETTINGS)
    return tmp_path / "whole"


@pytest.mark.parametrize("number", CAUGHT)
@pytest.mark.parametrize("step", [1, 2, 3, 4, 5])
def test_a_signal_between_steps(whole: Path, tmp_path: Path, step: int, number: int) -> None:
    with pytest.raises(Stopped) as stopped:
        train(tmp_path / "cut", progress=SignalAt(step, number), **SETTINGS)
    assert stopped.value.exit_code == 128 + number
    assert f"after step {step + 1}" in str(stopped.value)
    assert newest(tmp_path / "cut").name.endswith(f"{step + 1}")
    train(tmp_path / "cut", resume=True, **SETTINGS)
    assert_same_result(whole, tmp_path / "cut")


def test_a_signal_in_the_last_step_lets_the_run_finish(whole: Path, tmp_path: Path) -> None:
    train(tmp_path / "cut", progress=SignalAt(6), **SETTINGS)
    assert_same_result(whole, tmp_path / "cut")


@pytest.mark.parametrize("micro", [0, 1, 8, 14])
def test_a_signal_between_the_parts_of_a_batch(tmp_path: Path, micro: int) -> None:
    def run(out: Path, at: int, *, resume: bool = False) -> None:
        train(out, method=SignallingMethod(at), resume=resume, **SETTINGS)

    run(tmp_path / "whole", -1)
    with pytest.raises(Stopped):
        run(tmp_path / "cut", micro)
    run(tmp_path / "cut", -1, resume=True)
    assert_same_result(tmp_path / "whole", tmp_path / "cut")


def test_a_signal_during_validation(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(*args: Any) -> tuple[float, float]:
        raise_signal()
        return accuracy.measure(*args)

    with monkeypatch.context() as patch:
        patch.setattr(loop_module, "measure", measure)
        with pytest.raises(Stopped):
            train(tmp_path / "cut", **SETTINGS)
    train(tmp_path / "cut", resume=True, **SETTINGS)
    assert_same_result(whole, tmp_path / "cut")


def test_a_second_signal_during_the_save_does_not_tear(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = []

    def interrupted_save(*args: Any) -> None:
        raise_signal(signal.SIGINT)
        checkpoint_save(*args)
        raise_signal(signal.SIGTERM)
        saved.append(args[0])

    checkpoint_save = checkpoint.save
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save", interrupted_save)
        with pytest.raises(Stopped) as stopped:
            train(tmp_path / "cut", progress=SignalAt(2), **SETTINGS)
    assert stopped.value.exit_code == 128 + signal.SIGTERM  # the first one counts
    checkpoint.load(saved[-1])
    train(tmp_path / "cut", resume=True, **SETTINGS)
    assert_same_result(whole, tmp_path / "cut")


def test_the_comparison_sees_a_lost_step(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: a save that forgets the step in which the signal came."""
    with pytest.raises(Stopped):
        train(tmp_path / "cut", progress=SignalAt(2), **SETTINGS)
    tensors, facts = checkpoint.load(newest(tmp_path / "cut"))
    facts["position"]["step"] -= 1
    checkpoint.save(newest(tmp_path / "cut"), tensors, facts)
    train(tmp_path / "cut", resume=True, **SETTINGS)
    assert_different_result(whole, tmp_path / "cut")


class TestHandlers:
    def handlers(self) -> list[Any]:
        return [signal.getsignal(number) for number in CAUGHT]

    def test_they_are_put_back_after_any_end(self, tmp_path: Path) -> None:
        before = self.handlers()
        train(epochs=1)
        assert self.handlers() == before
        with pytest.raises(Stopped):
            train(tmp_path / "run", progress=SignalAt(1), **SETTINGS)
        assert self.handlers() == before
        with pytest.raises(RuntimeError, match="broken"):
            train(method=lambda *args, **kwargs: broken(), epochs=1)
        assert self.handlers() == before

    def test_inside_they_only_set_a_flag(self) -> None:
        before = self.handlers()
        with StopFlag() as flag:
            assert self.handlers() != before
            assert flag.signal is None
            raise_signal(signal.SIGINT)
            raise_signal(signal.SIGTERM)
            assert flag.signal == signal.SIGINT
        assert self.handlers() == before

    def test_a_run_in_another_thread_catches_nothing(self) -> None:
        ended = []
        thread = threading.Thread(target=lambda: ended.append(train(epochs=1)))
        thread.start()
        thread.join()
        assert ended[0].position.finished


def broken() -> None:
    raise RuntimeError("broken")


def slow_saves(out: str, **settings: Any) -> None:
    """Train with saves that take long, as a full disk's do; end with the code of the command line."""
    fsync = os.fsync
    os.fsync = lambda number: (time.sleep(0.3), fsync(number))[1]
    try:
        train(out, **settings)
    except Stopped as stopped:
        sys.exit(stopped.exit_code)


def test_a_real_process_told_twice_ends_whole(whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "cut"
    process = start(slow_saves, str(out), **SETTINGS | {"checkpoint_seconds": 0.0})
    while process.is_alive() and not (out / "rows.jsonl").exists():
        time.sleep(0.01)
    for _ in range(4):
        os.kill(process.pid, signal.SIGTERM)
        time.sleep(0.2)
    process.join()
    assert process.exitcode == 143
    train(out, resume=True, **SETTINGS)
    assert_same_result(whole, out)


def ending_with_a_code(out: str, **settings: Any) -> None:
    try:
        train(out, resume=True, **settings)
    except Stopped as stopped:
        sys.exit(stopped.exit_code)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 2, 4])
def test_twenty_signals_at_any_time(tmp_path: Path, workers: int) -> None:
    settings = SETTINGS | {"epochs": 1000, "workers": workers}
    train(tmp_path / "whole", **settings)
    moments, stopped, runs = random.Random(workers), 0, 0
    while stopped < 20:
        runs += 1
        out, code = tmp_path / f"cut{runs}", 143
        while code == 143 and stopped < 20:
            process = start(ending_with_a_code, str(out), **settings)
            while process.is_alive() and f"process {process.pid} " not in holder_of(out):
                time.sleep(0.005)
            time.sleep(0.2 + moments.uniform(0, 0.3))  # past the start, where a signal ends a process at once
            process.terminate()  # which may have come to its end
            process.join(300)
            code = process.exitcode
            stopped += code == 143
        train(out, resume=True, **settings)
        assert_same_result(tmp_path / "whole", out)


def holder_of(out: Path) -> str:
    return (out / ".lock").read_text() if (out / ".lock").exists() else ""


COMMAND = [
    "train", "--data", "digits", "--subset", "48", "--model", "mlp", "--epochs", "100", "--batch-size", "16",
    "--workers", "2", "--set", "train.log_every=1",
]  # fmt: skip


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("commands") / "whole"
    assert main([*COMMAND, "--out", str(out)]) == 0
    return out


@pytest.mark.parametrize("number", CAUGHT)
def test_the_command_line_ends_politely_when_its_group_is_told(
    tmp_path: Path, number: int, uninterrupted: Path
) -> None:
    cut = tmp_path / "cut"
    process = subprocess.Popen(
        [sys.executable, "-m", "nfm", *COMMAND, "--out", str(cut)], env=QUIET, start_new_session=True,
        stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stderr is not None
    while process.stderr.readline().strip() != "training":
        assert process.poll() is None
    time.sleep(0.1)
    os.killpg(process.pid, number)
    _, told = process.communicate(timeout=600)
    assert process.returncode == 128 + number
    assert told.splitlines()[-1].startswith("error: stopped after step")
    assert "Traceback" not in told
    assert main([*COMMAND, "--out", str(cut), "--resume", "auto"]) == 0
    assert_same_result(uninterrupted, cut)
