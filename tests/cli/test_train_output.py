"""What ``nfm train`` prints and leaves: a plan without traces, a summary of one screen, exports on request."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from comparing import assert_global_generators_untouched
from nfm.cli import main
from nfm.method.presets import preset
from nfm.train.estimate import TRIED, estimate
from nfm.train.optim import Optimizer
from nfm.train.ranks import Ranks
from nfm.train.settings import Settings
from running import digits, network, nfm

DIGITS = ["train", "--data", "digits", "--model", "mlp", "--epochs", "2", "--subset", "64"]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


class TestDryRun:
    def test_it_prints_the_plan_and_writes_nothing(
        self, elsewhere: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main([*DIGITS, "--dry-run", "--batch-size", "16"]) == 0
        told = capsys.readouterr().out
        for words in (
            '"scheme": "nfm"', "MLP: one of 4 sites a step", "hidden1", "4x64", "parameters: 13,", "trainable",
            "64 an epoch, 4 steps, 2 epochs", "s a step", "h in all", "MiB at the peak",
        ):  # fmt: skip
            assert words in told
        assert list(elsewhere.iterdir()) == []

    def test_it_counts_what_is_trainable(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main([*DIGITS, "--dry-run"]) == 0
        whole = re.search(r"parameters: ([\d,]+), trainable ([\d,]+)", capsys.readouterr().out)
        assert main([*DIGITS, "--dry-run", "--freeze", "hidden*"]) == 0
        frozen = re.search(r"parameters: ([\d,]+), trainable ([\d,]+)", capsys.readouterr().out)
        assert whole is not None
        assert frozen is not None
        assert whole[1] == whole[2] == frozen[1]
        assert frozen[2] == "650"  # 64 x 10 + 10

    def test_it_leaves_the_network_and_the_generators_alone(self) -> None:
        data = digits()
        model = network(data, "small_conv")
        before = {name: value.clone() for name, value in model.state_dict().items()}
        with assert_global_generators_untouched():
            told = estimate(
                model, preset("nfm"), data, Optimizer(), Settings(batch_size=16, epochs=7), None, Ranks()
            )
        assert all((value == before[name]).all() for name, value in model.state_dict().items())
        assert (told.examples, told.steps, told.epochs) == (48, 3, 7)
        assert told.parameters == sum(p.numel() for p in model.parameters())
        assert told.seconds_per_step > 0
        assert told.peak_bytes > 2**20
        assert TRIED >= 2

    def test_bad_inputs_are_refused_by_it_too(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main([*DIGITS, "--dry-run", "--set", "method.sites=nowhere"]) == 2
        assert "nowhere" in capsys.readouterr().err


class TestRun:
    def test_it_ends_with_one_screen(self, elsewhere: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(DIGITS) == 0
        told = capsys.readouterr()
        lines = told.out.splitlines()
        assert len(lines) <= 24
        assert lines[0] == "run:         runs/digits-mlp-nfm-seed0"
        assert re.match(r"train loss:  \d\.\d{4} \(mixed\)   probe \d+\.\d%", lines[1])
        assert re.match(r"validation:  \d+\.\d\d% last, \d+\.\d\d% best", lines[2])
        assert told.err.splitlines() == ["training"]
        kept = {path.name for path in (elsewhere / "runs" / "digits-mlp-nfm-seed0").iterdir()}
        assert kept == {"run.json", "rows.jsonl", "times.jsonl", "checkpoints", "training.png", ".lock"}

    def test_exports_are_made_on_request(self, elsewhere: Path) -> None:
        assert main([*DIGITS, "--csv", "--out", "run"]) == 0
        assert (elsewhere / "run" / "epochs.csv").read_text().count("\n") == 3

    def test_what_an_export_needs_is_told_before_training(
        self, elsewhere: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
        assert main([*DIGITS, "--tensorboard"]) == 5
        assert "noisy-feature-mixup[track]" in capsys.readouterr().err
        assert list(elsewhere.iterdir()) == []

    def test_a_run_is_good_without_its_picture(
        self, elsewhere: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
        assert main([*DIGITS, "--out", "run"]) == 0
        assert "picture:     none (drawing needs matplotlib" in capsys.readouterr().out

    def test_no_epochs_are_a_valid_run(self, elsewhere: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main([*DIGITS[:-4], "--epochs", "0", "--out", "run"]) == 0
        assert capsys.readouterr().out == "run:         run\n"
        assert main([*DIGITS[:-4], "--epochs", "0", "--out", "run", "--resume", "auto"]) == 0
        assert "nothing to do" in capsys.readouterr().err

    @pytest.mark.slow
    def test_a_poor_environment_is_enough(self, elsewhere: Path) -> None:
        """No home, the C locale, no UTF-8 mode."""
        poor = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "HOME": "/nonexistent"}
        ended = nfm(*DIGITS, "--out", "run", cwd=elsewhere, env=poor)
        assert ended.returncode == 0, ended.stderr
        assert (elsewhere / "run" / "rows.jsonl").exists()

    def test_a_run_can_be_begun_with(self, elsewhere: Path) -> None:
        assert main([*DIGITS, "--out", "first"]) == 0
        assert main([*DIGITS, "--init-from", "first", "--freeze", "hidden*", "--out", "second"]) == 0
