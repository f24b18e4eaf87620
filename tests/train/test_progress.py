"""What a person sees of a run: a bar on a terminal, plain lines elsewhere; the right numbers in both."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from nfm.train import progress as progress_module
from nfm.train.progress import Bar, Lines, Moment, Silent, choose_progress, describe, seconds_left
from running import InterruptAfter, Interrupted, train

HALF = Moment(epoch=2, epochs=3, step=30, steps=60, loss=0.5, examples=3000, probe=0.75)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_line_tells_where_the_run_stands() -> None:
    assert describe(HALF, 10.0) == (
        "epoch 2/3  step 30/60  loss 0.5000  probe 75.0%  300 examples/s  0:10 left"
    )
    assert "probe" not in describe(Moment(1, 3, 1, 60, 0.5, 100), 10.0)


@pytest.mark.parametrize(
    ("moment", "seconds", "told"),
    [
        (HALF, 10.0, "0:10"),
        (HALF, 3700.0, "1:01:40"),
        (HALF, 0.0, "-:--"),
        (Moment(1, 3, 0, 60, 0.5, 0), 5.0, "-:--"),
        (Moment(3, 3, 60, 60, 0.5, 0), 5.0, "0:00"),
        # resumed at step 20: ten steps took ten seconds, thirty are left
        (Moment(2, 3, 30, 60, 0.5, 0, earlier=20), 10.0, "0:30"),
        (Moment(2, 3, 20, 60, 0.5, 0, earlier=20), 10.0, "-:--"),
    ],
)
def test_the_time_left_is_that_of_this_session(moment: Moment, seconds: float, told: str) -> None:
    assert seconds_left(moment, seconds) == told


def test_lines_come_at_most_so_often(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(progress_module.time, "monotonic", lambda: now[0])
    stream = io.StringIO()
    lines = Lines(stream, every=10.0)
    lines.start("training", HALF)
    for _ in range(35):
        now[0] += 1.0
        lines.step(HALF)
    lines.note("a note")
    lines.stop()
    told = stream.getvalue().splitlines()
    assert told[0] == "training"
    assert [line.startswith("epoch 2/3") for line in told[1:4]] == [True] * 3
    assert told[4:] == ["a note"]
    assert "\r" not in stream.getvalue()


def test_a_terminal_gets_a_bar_and_others_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(choose_progress(io.StringIO()), Lines)
    assert isinstance(choose_progress(Terminal()), Bar)
    monkeypatch.setitem(sys.modules, "rich.console", None)
    assert isinstance(choose_progress(Terminal()), Lines)  # without rich


def test_a_bar_is_drawn_and_cleared(capsys: pytest.CaptureFixture[str]) -> None:
    bar = Bar()
    bar.start("training", HALF)
    bar.step(HALF)
    task = bar._bar.tasks[0]
    assert (task.completed, task.total) == (30, 60)
    assert task.description.startswith("epoch 2/3  step 30/60")
    bar.note("[not markup] a note")
    bar.stop()
    assert "[not markup] a note" in capsys.readouterr().err


def test_a_bar_is_stopped_also_when_training_fails() -> None:
    bar = Bar()

    def broken(*args: object, **options: object) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        train(method=broken, progress=bar)
    assert not bar._bar.live.is_started


class Record(InterruptAfter):
    def __init__(self, steps: int | None = None) -> None:
        super().__init__(steps)
        self.moments: list[Moment] = []

    def step(self, moment: Moment) -> None:
        self.moments.append(moment)
        super().step(moment)


def test_a_run_tells_every_step(tmp_path: Path) -> None:
    first, second = Record(4), Record()
    with pytest.raises(Interrupted):
        train(tmp_path / "run", progress=first)
    train(tmp_path / "run", resume=True, progress=second)
    assert [moment.step for moment in first.moments] == [1, 2, 3, 4, 5]
    assert [moment.step for moment in second.moments] == [5, 6]
    assert {moment.steps for moment in first.moments + second.moments} == {6}
    assert [moment.epoch for moment in first.moments] == [1, 1, 1, 2, 2]
    assert [moment.examples for moment in second.moments] == [16, 32]  # of this session
    assert {moment.earlier for moment in second.moments} == {4}
    assert first.moments[0].probe is None
    assert first.moments[3].probe is not None


def test_silence() -> None:
    silent = Silent()
    silent.start("training", HALF)
    silent.step(HALF)
    silent.note("a note")
    silent.stop()
