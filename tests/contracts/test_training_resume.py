"""Every scheme, interrupted at every step, goes on to the byte as if never interrupted."""

from __future__ import annotations

from contextlib import nullcontext, suppress
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from nfm.data import Batches, CropFlip
from nfm.method.feature_mixup import NoisyFeatureMixup
from nfm.method.presets import PRESETS
from nfm.train import checkpoint
from nfm.train.optim import Optimizer
from running import Interrupted, assert_different_result, assert_same_result, in_memory, rows_of, train

SCHEMES = ("erm", "mixup", "manifold_mixup", "noise_injection", "nfm")
tmp_path = in_memory
STEPS = 6  # two epochs of three


def interrupted_at_every_step(out: Path, **settings: Any) -> int:
    """Train in sessions that are each cut off in their second step; return how many it took."""
    for session in range(1, STEPS + 2):
        with suppress(Interrupted):
            train(out, resume=session > 1, interrupt=1, **settings)
            return session
    raise AssertionError("the run did not end")


@pytest.mark.parametrize("accumulate", [1, 3])
@pytest.mark.parametrize("ema", [0.0, 0.9])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_scheme_resumes_to_the_byte_from_any_step(
    tmp_path: Path, scheme: str, ema: float, accumulate: int
) -> None:
    settings = {"scheme": scheme, "ema": ema, "accumulate": accumulate}
    train(tmp_path / "whole", **settings)
    assert interrupted_at_every_step(tmp_path / "cut", **settings) == STEPS
    assert_same_result(tmp_path / "whole", tmp_path / "cut")


def test_the_schemes_are_those_there_are() -> None:
    assert set(SCHEMES) <= set(PRESETS)


@pytest.mark.parametrize(
    "settings",
    [
        {"name": "small_conv"},
        {"name": "small_conv", "channels_last": True, "ema": 0.5},
        {"name": "mlp", "options": {"dropout": 0.5}},
        {"name": "small_conv", "augment": CropFlip(pad=1)},
        {"optimizer": Optimizer("adamw", lr=1e-3, decay_all=False, rates={"head*": 0.1})},
        {"optimizer": Optimizer("sgd", nesterov=True), "clip": 0.1, "label_smoothing": 0.1},
        {"precision": "bfloat16"},
        {"precision": "float16"},
        {"batch_size": 7, "accumulate": 2, "epochs": 1},
        {"deterministic": True},
    ],
    ids=lambda settings: "-".join(str(settings[key]) for key in settings)[:60],
)
def test_every_kind_of_state_resumes_to_the_byte(tmp_path: Path, settings: dict[str, Any]) -> None:
    train(tmp_path / "whole", **settings)
    with suppress(Interrupted):
        train(tmp_path / "cut", interrupt=3, **settings)
    with suppress(Interrupted):
        train(tmp_path / "cut", resume=True, interrupt=2, **settings)
    train(tmp_path / "cut", resume=True, **settings)
    assert_same_result(tmp_path / "whole", tmp_path / "cut")


@pytest.mark.parametrize(("before", "after"), [(0, 2), (2, 0)])
def test_the_number_of_workers_may_change_at_a_resume(tmp_path: Path, before: int, after: int) -> None:
    train(tmp_path / "whole", augment=CropFlip(pad=1), workers=0)
    with pytest.raises(Interrupted):
        train(tmp_path / "cut", augment=CropFlip(pad=1), workers=before, interrupt=4)
    train(tmp_path / "cut", augment=CropFlip(pad=1), workers=after, resume=True)
    assert_same_result(tmp_path / "whole", tmp_path / "cut")


def test_rows_are_whole_and_in_order_after_many_cuts(tmp_path: Path) -> None:
    interrupted_at_every_step(tmp_path / "cut")
    assert [row["step"] for row in rows_of(tmp_path / "cut", "step")] == list(range(STEPS))
    assert [row["epoch"] for row in rows_of(tmp_path / "cut", "epoch")] == [0, 1]


class TestTheComparisonSees:
    """Negative controls: each ingredient of a resume, left out, must show."""

    def cut_and_go_on(self, tmp_path: Path, **settings: Any) -> None:
        train(tmp_path / "whole", **settings)
        with pytest.raises(Interrupted):
            train(tmp_path / "cut", interrupt=4, **settings)
        train(tmp_path / "cut", resume=True, **settings)
        assert_different_result(tmp_path / "whole", tmp_path / "cut")

    def test_a_lost_place_in_the_epoch(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        whole = Batches.epoch

        def from_the_start(self: Batches, epoch: int, start_step: int = 0) -> Any:
            return islice(whole(self, epoch), self.steps_per_epoch - start_step)

        monkeypatch.setattr(Batches, "epoch", from_the_start)
        self.cut_and_go_on(tmp_path, scheme="erm")

    def test_a_step_key_that_counts_from_the_resume(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        keyed = NoisyFeatureMixup.choose
        monkeypatch.setattr(NoisyFeatureMixup, "choose", lambda self, sites, *_, **__: keyed(self, sites))
        self.cut_and_go_on(tmp_path)

    def test_layers_that_draw_from_the_global_generator(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("nfm.train.step.lend_global", lambda key, device: nullcontext())
        self.cut_and_go_on(tmp_path, scheme="erm", options={"dropout": 0.5})

    @pytest.mark.parametrize("lost", ["optimizer.", "average.", "model."])
    def test_a_lost_part_of_the_state(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: str
    ) -> None:
        whole = checkpoint.load

        def blurred(path: Path) -> Any:
            tensors, facts = whole(path)
            return {n: v * 0.999 if n.startswith(lost) else v for n, v in tensors.items()}, facts

        monkeypatch.setattr(checkpoint, "load", blurred)
        train(tmp_path / "whole", ema=0.9)
        with pytest.raises(Interrupted):
            train(tmp_path / "cut", ema=0.9, interrupt=4)
        train(tmp_path / "cut", ema=0.9, resume=True)
        monkeypatch.undo()
        assert_different_result(tmp_path / "whole", tmp_path / "cut")
