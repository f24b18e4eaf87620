"""Bad inputs to ``nfm train``: the documented exit code, one line that says what to do, and nothing written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from nfm.cli import main
from nfm.config.schema import Config
from running import nfm

DIGITS = ["--data", "digits", "--model", "mlp", "--epochs", "1"]
USAGE, DATA, MACHINE = 2, 3, 5

# what is given beside a good command, exit code, words of the answer
CASES: dict[str, tuple[list[str], int, str]] = {
    "alpha negative": (["--set", "method.alpha=-1"], USAGE, "alpha: expected a finite number, 0"),
    "alpha nan": (["--set", "method.alpha=nan"], USAGE, "alpha"),
    "alpha inf": (["--set", "method.alpha=inf"], USAGE, "alpha"),
    "beta zero": (["--set", "method.beta=0"], USAGE, "beta"),
    "noise negative": (["--set", "method.noise.add=-0.1"], USAGE, "noise.add: expected a finite level"),
    "noise nan": (["--set", "method.noise.add=nan"], USAGE, "noise.add"),
    "noise inf": (["--set", "method.noise.mult=inf"], USAGE, "noise.mult"),
    "noise law": (["--set", "method.noise.add_law=gausian"], USAGE, "did you mean 'gaussian'"),
    "noise key": (["--set", "method.noise.adds=1"], USAGE, "did you mean 'add'"),
    "site unknown": (["--set", "method.sites=hiden1"], USAGE, "hidden1"),
    "sites empty": (["--set", "method.sites=[]"], USAGE, "sites: expected one or more names"),
    "scheme unknown": (["--scheme", "nmf"], USAGE, "did you mean 'nfm'"),
    "weights unknown": (["--set", "method.weights=one"], USAGE, "weights: expected"),
    "seed negative": (["--seed", "-1"], USAGE, "seed: expected a whole number from 0 to 4294967295, got -1"),
    "seed large": (["--seed", "4294967296"], USAGE, "seed"),
    "seed text": (["--seed", "abc"], USAGE, "train.seed: expected a whole number"),
    "seed fraction": (["--seed", "1.5"], USAGE, "train.seed: expected a whole number"),
    "epochs negative": (["--epochs", "-1"], USAGE, "epochs: expected a whole number of at least 0"),
    "batch zero": (["--batch-size", "0"], USAGE, "batch_size: expected a whole number of at least 1"),
    "batch negative": (["--batch-size", "-8"], USAGE, "batch_size"),
    "batch fraction": (["--batch-size", "8.0"], USAGE, "batch_size: expected a whole number"),
    "accumulate large": (["--accumulate", "129"], USAGE, "accumulate: expected at most batch_size"),
    "rate nan": (["--lr", "nan"], USAGE, "optimizer.lr"),
    "optimizer": (["--optimizer", "adamx"], USAGE, "did you mean 'adam"),
    "schedule": (["--schedule", "cosin"], USAGE, "did you mean 'cosine'"),
    "precision": (["--precision", "bf16"], USAGE, "expected one of float32"),
    "betas": (["--set", "optimizer.betas=[0.9, 2]"], USAGE, "optimizer.betas"),
    "rates": (["--set", "optimizer.rates.haed=0.1"], USAGE, "no parameter fits 'haed'"),
    "freeze": (["--freeze", "haed*"], USAGE, "freeze: no parameter fits 'haed*'"),
    "all frozen": (["--freeze", "*"], USAGE, "all are frozen"),
    "key unknown": (["--set", "train.epoch=3"], USAGE, "did you mean 'epochs'"),
    "set without value": (["--set", "train.epochs"], USAGE, "expected key=value"),
    "data unknown": (["--data", "digit"], USAGE, "did you mean 'digits'"),
    "data argument": (["--data", "digits:7"], USAGE, "takes nothing after a colon"),
    "data gone": (["--data", "cifar10", "--model", "small_conv"], DATA, "cifar10"),
    "data file gone": (["--data", "npz:none.npz"], DATA, "none.npz"),
    "subset large": (["--subset", "5000"], USAGE, "subset: expected a whole number from 1 to"),
    "subset negative": (["--subset", "-3"], USAGE, "subset"),
    "label noise": (["--label-noise", "1.5"], USAGE, "label_noise: expected a probability"),
    "imbalance": (["--imbalance", "0.5"], USAGE, "imbalance: expected a ratio"),
    "validation": (["--set", "data.validation=1.0"], USAGE, "validation: expected a fraction"),
    "model unknown": (["--model", "preact_resnet"], USAGE, "did you mean 'preact_resnet"),
    "model option": (["--set", "model.options.unist=3"], USAGE, "did you mean 'units'"),
    "model prefix": (["--model", "tim:resnet18"], USAGE, "did you mean 'timm'"),
    "model module": (["--model", "module:no.such:net"], USAGE, "cannot import 'no.such'"),
    "model for images": (["--data", "circles", "--model", "small_conv"], USAGE, "small_conv"),
    "augment of vectors": (["--data", "circles", "--augment", "crop_flip"], USAGE, "augmentation needs images"),
    "normalisation": (["--set", "model.normalisation=authors"], USAGE, "is for images of 3 channels"),
    "init gone": (["--init-from", "none.pt"], DATA, "cannot read none.pt: No such file"),
    "init folder": (["--init-from", "."], DATA, "expected the folder of a run"),
    "device absent": (["--device", "cuda"], MACHINE, "this machine has no CUDA; use --device cpu"),
    "device unknown": (["--device", "gpu"], USAGE, "device: expected auto, cpu, cuda or cuda:N"),
    "sync": (["--sync-batch-norm"], MACHINE, "sync_batch_norm"),
    "out dash": (["--out=-rf"], USAGE, "out: expected a folder with a printable name"),
    "out dots": (["--out", ".."], USAGE, "out: expected a folder with a printable name"),
    "out empty": (["--out", ""], USAGE, "out: expected a folder with a printable name"),
    "out control": (["--out", "a\x07b"], USAGE, "out: expected a folder with a printable name"),
    "out long": (["--out", "x" * 300], USAGE, "out: expected a folder with a printable name"),
    "out deep": (["--out", "x" * 300 + "/run"], MACHINE, "File name too long"),
    "resume and overwrite": (["--resume", "auto", "--overwrite"], USAGE, "got both"),
}  # fmt: skip


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder, with no data to be found."""
    for name in ("NFM_DATA", "HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "nowhere"))
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return work


@pytest.mark.parametrize("case", CASES)
def test_it_is_answered_in_one_line(case: str, elsewhere: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if case == "device absent" and torch.cuda.is_available():
        pytest.skip("this machine has CUDA")
    given, code, words = CASES[case]
    assert main(["train", *DIGITS, *given]) == code
    told = capsys.readouterr()
    assert told.out == ""
    lines = told.err.splitlines()
    assert len(lines) == 1, lines
    assert lines[0].startswith("error: ")
    assert words in lines[0]
    assert list(elsewhere.iterdir()) == []


def test_the_good_command_is_good(elsewhere: Path) -> None:
    """The control of all cases above."""
    assert main(["train", *DIGITS, "--out", "run"]) == 0
    assert (elsewhere / "run" / "rows.jsonl").exists()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--resume", "yes"], "invalid choice: 'yes'"),
        (["--epoch", "3", "--no-such-flag"], "unrecognized arguments"),
        (["--outt=x"], "unrecognized arguments: --outt=x (did you mean '--out'?)"),
        (["--seed"], "expected one argument"),
    ],
)
def test_flags_that_do_not_parse(given: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["train", *DIGITS, *given])
    assert stop.value.code == USAGE
    assert words in capsys.readouterr().err


def test_nothing_to_train_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train"]) == USAGE
    assert "expected a recipe, or flags such as --data" in capsys.readouterr().err
    assert main(["train", "no-such-recipe"]) == USAGE
    assert "no recipe 'no-such-recipe'" in capsys.readouterr().err


def test_half_an_environment_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RANK", "0")
    assert main(["train", *DIGITS]) == MACHINE
    assert "RANK and WORLD_SIZE" in capsys.readouterr().err


def test_many_errors_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", *DIGITS, "--seed", "x", "--lr", "y", "--set", "a.b=1"]) == USAGE
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "error: 3 errors:"
    assert len(lines) == 4


def test_an_interrupt_before_training_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(config: Config) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("nfm.cli.training.build_run", interrupt)
    assert main(["train", *DIGITS]) == 130
    assert capsys.readouterr().err == "error: interrupted\n"


class TestFolders:
    def test_a_run_is_there(self, elsewhere: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["train", *DIGITS, "--out", "run"]) == 0
        capsys.readouterr()
        assert main(["train", *DIGITS, "--out", "run"]) == USAGE
        assert "--resume auto goes on with it, --overwrite starts anew" in capsys.readouterr().err
        assert main(["train", *DIGITS, "--out", "run", "--resume", "auto"]) == 0
        assert "nothing to do: this run is finished" in capsys.readouterr().err
        assert main(["train", *DIGITS, "--out", "run", "--overwrite"]) == 0

    def test_another_run_is_there(self, elsewhere: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["train", *DIGITS, "--out", "run"]) == 0
        capsys.readouterr()
        changed = ["--seed", "3", "--lr", "0.2", "--set", "model.normalisation=none"]
        assert main(["train", *DIGITS, "--out", "run", "--resume", "auto", *changed]) == USAGE
        told = capsys.readouterr().err
        for key in (
            "settings.seed: was 0, now 3",
            "optimizer.lr: was 0.1, now 0.2",
            "normalisation: was 'data', now 'none'",
        ):
            assert key in told

    def test_a_file_is_there(self, elsewhere: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (elsewhere / "run").write_text("mine")
        assert main(["train", *DIGITS, "--out", "run"]) == MACHINE
        assert "expected a folder, run is a file" in capsys.readouterr().err
        assert (elsewhere / "run").read_text() == "mine"

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
    def test_a_folder_one_may_not_write_to(self, elsewhere: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (elsewhere / "locked").mkdir(mode=0o500)
        assert main(["train", *DIGITS, "--out", "locked/run"]) == MACHINE
        assert "Permission denied" in capsys.readouterr().err


def test_a_real_process_answers_alike(elsewhere: Path) -> None:
    ended = nfm("train", *DIGITS, "--scheme", "nmf", cwd=elsewhere)
    assert ended.returncode == USAGE
    assert ended.stdout == ""
    assert ended.stderr.startswith("error: ")
    assert "Traceback" not in ended.stderr
    debugged = nfm("--debug", "train", *DIGITS, "--scheme", "nmf", cwd=elsewhere)
    assert debugged.returncode == 1
    assert "Traceback" in debugged.stderr
    assert list(elsewhere.iterdir()) == []
