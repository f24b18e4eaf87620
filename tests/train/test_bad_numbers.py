"""NaN and infinity: the run stops in that very step, says where, and nothing of the step remains."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nfm.cli import main
from nfm.errors import NumericalError
from nfm.method.feature_mixup import Outcome
from nfm.method.presets import preset
from nfm.train import fit as fit_module
from nfm.train.loop import Loop
from nfm.train.step import Stepper
from running import InterruptAfter, Moment, assert_same_result, newest, rows_of, train

PLACES = ("input", "loss", "gradient", "one gradient")
VALUES = (float("nan"), float("inf"), -float("inf"))


class Poison:
    """A scheme that goes bad at one place in one (part of a) step."""

    def __init__(self, place: str, value: float, step: int) -> None:
        self.inner = preset("nfm", seed=3)
        self.place, self.value, self.step = place, value, step

    def __repr__(self) -> str:
        return "Poison"

    def __call__(self, model: Any, x: Any, y: Any, *, criterion: Any, step: int) -> Outcome:
        bad = step == self.step
        if bad and self.place == "input":
            x = x.clone()
            x[0, 0, 0, 0] = self.value
        outcome = self.inner(model, x, y, criterion=criterion, step=step)
        if bad and self.place == "loss":
            return replace(outcome, loss=outcome.loss * 0 + self.value)
        if bad and self.place == "gradient":
            outcome.output.register_hook(lambda gradient: gradient + self.value)
        if bad and self.place == "one gradient":
            handle = model.head.bias.register_hook(
                lambda gradient: (handle.remove(), gradient + self.value)[1]
            )
        return outcome


class Watch(InterruptAfter):
    """Keep the state after each step, as a checkpoint would hold it."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.loops: list[Loop] = []
        self.states: list[Any] = []

        def remember(**parts: Any) -> Loop:
            self.loops.append(Loop(**parts))
            return self.loops[-1]

        patch.setattr(fit_module, "Loop", remember)

    def now(self) -> Any:
        tensors, facts = self.loops[-1].state.export()
        return {name: value.clone() for name, value in tensors.items()}, copy.deepcopy(facts)

    def start(self, title: str, moment: Moment) -> None:
        self.states.append(self.now())

    def step(self, moment: Moment) -> None:
        self.states.append(self.now())


def assert_equal_states(one: Any, other: Any) -> None:
    assert one[0].keys() == other[0].keys()
    # Compared as bytes: NaN is not equal to itself.
    assert [
        name for name in one[0] if one[0][name].numpy().tobytes() != other[0][name].numpy().tobytes()
    ] == []
    assert one[1]["position"] == other[1]["position"]


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("step", [0, 4])
def test_a_bad_number_stops_its_step_and_leaves_no_trace(
    monkeypatch: pytest.MonkeyPatch, place: str, value: float, step: int
) -> None:
    watch = Watch(monkeypatch)
    with pytest.raises(NumericalError) as told:
        train(
            name="small_conv",
            method=Poison(place, value, step),
            ema=0.9,
            progress=watch,
            log_every=50,
            seed=3,
        )
    message = str(told.value)
    draw = preset("nfm", seed=3).choose(("input", "stage1", "stage2"), step=step)
    assert message.startswith(f"step {step}: expected a finite loss and gradient, got ")
    assert f"site {draw.site!r}, weight {draw.arguments.numbers.weight:.6g}, examples " in message
    assert told.value.exit_code == 4
    assert len(watch.states) == step + 1
    assert_equal_states(watch.now(), watch.states[-1])
    assert any(name.startswith("average.") for name in watch.now()[0])
    assert any("running_mean" in name for name in watch.now()[0])
    assert any("momentum" in name for name in watch.now()[0]) == (step > 0)


def test_a_bad_part_of_a_batch_stops_the_whole_step(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(monkeypatch)
    with pytest.raises(NumericalError, match=r"^step 2: "):
        train(
            name="small_conv", method=Poison("input", float("nan"), 7), accumulate=3, progress=watch, ema=0.9
        )
    assert_equal_states(watch.now(), watch.states[2])


def test_the_control_is_poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the look at the numbers, weights, statistics and averages are lost for good."""
    monkeypatch.setattr(Stepper, "_refuse", lambda *args: None)
    watch = Watch(monkeypatch)
    train(name="small_conv", method=Poison("input", float("nan"), 4), ema=0.9, progress=watch)
    poisoned = [name for name, value in watch.now()[0].items() if value.isnan().any()]
    assert {name.partition(".")[0] for name in poisoned} == {"model", "average", "optimizer"}
    assert any("running_mean" in name for name in poisoned)


def test_what_was_saved_before_can_be_gone_on_from(tmp_path: Path) -> None:
    with pytest.raises(NumericalError):
        train(tmp_path / "cut", method=Poison("loss", float("nan"), 4))
    assert newest(tmp_path / "cut").name.endswith("4")
    train(tmp_path / "cut", method=Poison("loss", float("nan"), -1), resume=True)
    train(tmp_path / "whole", method=Poison("loss", float("nan"), -1))
    assert_same_result(tmp_path / "whole", tmp_path / "cut")


def test_the_command_line_says_it_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["train", "--data", "digits", "--model", "mlp", "--lr", "1e30", "--epochs", "2"]
    assert main([*command, "--out", str(tmp_path / "run")]) == 4
    told = capsys.readouterr().err.splitlines()
    assert told[-1].startswith("error: step ")
    assert "lower the learning rate" in told[-1]
    assert len([line for line in told if line.startswith("error")]) == 1


def test_a_scaler_skips_an_overflow_and_goes_on(tmp_path: Path) -> None:
    """With float16 an infinite gradient is expected now and then: the step is skipped, and told as such."""
    made = train(
        tmp_path / "run", method=Poison("gradient", float("inf"), 3), precision="float16", log_every=1
    )
    assert made.position.finished
    norms = [row["grad_norm"] for row in rows_of(tmp_path / "run", "step")]
    assert [norm is None for norm in norms] == [False, False, False, True, False, False]


def test_a_bad_loss_is_no_overflow(tmp_path: Path) -> None:
    with pytest.raises(NumericalError):
        train(method=Poison("loss", float("inf"), 3), precision="float16")
