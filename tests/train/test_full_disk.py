"""Disks that fail and processes that die in the middle of a save: the last good checkpoint is still there."""

from __future__ import annotations

import errno
import io
import os
import random
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from nfm.errors import EnvironmentProblem
from nfm.train import checkpoint
from nfm.train.folder import CHECKPOINTS
from running import InterruptAfter, Interrupted, assert_same_result, start, train

CALLS = ("fsync", "replace", "unlink", "write")


def failing(name: str, after: int, code: int, patch: pytest.MonkeyPatch) -> list[str]:
    """Let the call `name` of the system fail once, after `after` calls that work."""
    calls: list[str] = []

    def fail(whole: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            calls.append(name)
            if len(calls) == after + 1:
                raise OSError(code, os.strerror(code))
            return whole(*args, **kwargs)

        return call

    if name == "write":
        patch.setattr(Path, "open", lambda self, *args, **kw: FailingFile(open(self, *args, **kw), fail))  # noqa: SIM115
    elif name == "unlink":
        patch.setattr(Path, "unlink", fail(Path.unlink))
    else:
        patch.setattr(os, name, fail(getattr(os, name)))
    return calls


class FailingFile(io.IOBase):
    """An open file whose writes may fail."""

    def __init__(self, file: Any, fail: Any) -> None:
        self.file, self.write = file, fail(file.write)

    def __enter__(self) -> FailingFile:
        return self

    def __exit__(self, *args: object) -> None:
        self.file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.file)

    def fileno(self) -> int:
        return self.file.fileno()

    def flush(self) -> None:
        self.file.flush()


def whole_checkpoints(out: Path) -> int:
    paths = checkpoint.found_in(out / CHECKPOINTS, checkpoint.LAST)
    for path in paths:
        checkpoint.load(path)
    return len(paths)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EROFS, errno.EDQUOT])
def test_a_full_disk_is_told_with_what_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    out = tmp_path / "run"
    with pytest.raises(Interrupted):
        train(out, interrupt=3)
    with monkeypatch.context() as patch:
        failing("replace", 0, code, patch)
        with pytest.raises(EnvironmentProblem) as told:
            train(out, resume=True)
    assert os.strerror(code) in str(told.value)
    assert "bytes free" in str(told.value)
    assert "--resume auto" in str(told.value)
    assert str(out) in str(told.value)
    assert told.value.exit_code == 5
    assert whole_checkpoints(out) >= 1


@pytest.mark.parametrize("name", CALLS)
def test_a_failure_at_any_call_of_a_save_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Walk through every call of two saves, fail there, and go on to the same end."""
    train(tmp_path / "whole")
    failed = 0
    for after in range(40):
        out = tmp_path / f"cut{after}"
        with pytest.raises(Interrupted):
            train(out, interrupt=2)
        bar = InterruptAfter(2)
        with monkeypatch.context() as patch:
            calls = failing(name, after, errno.ENOSPC, patch)
            try:
                train(out, resume=True, progress=bar)
            except EnvironmentProblem:
                failed += 1
            except Interrupted:
                assert len(calls) <= after  # past the last call: nothing failed
        assert whole_checkpoints(out) >= 1
        if len(calls) <= after:
            break
        train(out, resume=True)
        assert_same_result(tmp_path / "whole", out)
    assert failed > 3


def test_a_disk_that_is_nearly_full_is_told_of_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bar = InterruptAfter()
    monkeypatch.setattr("nfm.train.loop.free_bytes", lambda path: 1000)
    train(tmp_path / "run", progress=bar, epochs=1)
    assert bar.notes[0].startswith("warning: three checkpoints need")
    assert "1,000 are free" in bar.notes[0]


def test_a_folder_that_vanishes_is_made_again(tmp_path: Path) -> None:
    class Vanish(InterruptAfter):
        def step(self, moment: Any) -> None:
            if moment.step == 3:
                shutil.rmtree(tmp_path / "run")

    made = train(tmp_path / "run", progress=Vanish())
    assert made.position.finished
    assert whole_checkpoints(tmp_path / "run") == 2


def save_for_ever(folder: str) -> None:
    """Save one checkpoint after another, 4 MB each."""
    for step in range(1_000_000):
        tensors = {"a": torch.full((1000, 1000), float(step))}
        checkpoint.save(checkpoint.path_of(Path(folder), checkpoint.LAST, step), tensors, {"step": step})
        checkpoint.prune(Path(folder))


def torn_after_kills(folder: Path, kills: int) -> int:
    moments = random.Random(kills)
    torn = 0
    for number in range(kills):
        place = folder / str(number)
        process = start(save_for_ever, str(place))
        while len(checkpoint.found_in(place, checkpoint.LAST)) < 1:
            time.sleep(0.002)
        time.sleep(moments.uniform(0, 0.1))
        process.kill()
        process.join()
        assert process.exitcode == -signal.SIGKILL
        for path in checkpoint.found_in(place, checkpoint.LAST):
            tensors, facts = checkpoint.load(path)
            torn += not bool((tensors["a"] == facts["step"]).all())
        shutil.rmtree(place)
    return torn


def test_no_checkpoint_is_torn_by_a_kill(tmp_path: Path) -> None:
    assert torn_after_kills(tmp_path, 5) == 0


@pytest.mark.slow
def test_no_checkpoint_is_torn_by_two_hundred_kills(tmp_path: Path) -> None:
    assert torn_after_kills(tmp_path, 200) == 0


def test_a_plain_write_would_be_torn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: without a draft and a rename, a failure in the middle leaves half a file in place."""

    def plainly(path: Path, content: bytes) -> None:
        path.write_bytes(content[: len(content) // 2])
        raise OSError(errno.ENOSPC, "No space left on device")

    path = checkpoint.path_of(tmp_path, checkpoint.LAST, 1)
    checkpoint.save(path, {"a": torch.ones(9)}, {})
    monkeypatch.setattr(checkpoint, "write_atomically", plainly)
    with pytest.raises(EnvironmentProblem):
        checkpoint.save(path, {"a": torch.zeros(9)}, {})
    with pytest.raises(Exception, match="checksum"):
        checkpoint.load(path)
