"""evaluate, compare, plot, report on the command line: what they write, go on with, refuse, and with which code."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from nfm.cli import evaluating, main
from nfm.cli.candidates import Request, find_candidate
from nfm.cli.levels import parse_levels
from nfm.cli.published import published
from nfm.errors import EnvironmentProblem, UsageError
from nfm.evaluate import PGD, SaltAndPepper, WhiteNoise, load_report
from nfm.evaluate.corruptions import Corruption
from nfm.models.task import Task
from nfm.train.progress import Lines

TRAIN = ["train", "--data", "digits", "--model", "small_conv", "--epochs", "1", "--subset", "100"]
SIZE = ["--set", "model.options.width=0.25"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with two trained and measured runs."""
    where = tmp_path_factory.mktemp("runs")
    for scheme in ("erm", "nfm"):
        assert main([*TRAIN, *SIZE, "--scheme", scheme, "--out", str(where / scheme)]) == 0
        assert main(["evaluate", str(where / scheme)]) == 0
    return where


@pytest.fixture
def run(runs: Path, tmp_path: Path) -> Path:
    """Return a copy of a trained run that was not measured."""
    shutil.copytree(runs / "nfm", tmp_path / "nfm", ignore=shutil.ignore_patterns("evaluation-*"))
    return tmp_path / "nfm"


def told(capsys: pytest.CaptureFixture[str]) -> str:
    """Return the one line of an error."""
    lines = capsys.readouterr().err.splitlines()
    assert "Traceback" not in " ".join(lines)
    return lines[-1]


def test_evaluate_keeps_rows_outcomes_strips_and_names(runs: Path) -> None:
    report = load_report(runs / "nfm" / "evaluation-pixel")
    row = report.row("white_noise", 0.1)
    assert (row["scheme"], row["train_seed"], row["data"], row["network"]) == (
        "nfm",
        0,
        "digits",
        "small_conv",
    )
    assert row["temperature"] > 0  # fitted on the run's own validation part
    assert "ece_scaled" in row
    about = json.loads((runs / "nfm" / "evaluation-pixel" / "about.json").read_text())
    assert about["classes"] == [str(digit) for digit in range(10)]
    assert len(list((runs / "nfm" / "evaluation-pixel" / "strips").iterdir())) == len(report.rows)


def test_evaluate_goes_on_and_adds(run: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    assert main(["evaluate", str(run), "--levels", "white_noise=0.1"]) == 0
    rows = run / "evaluation-pixel" / "rows.jsonl"
    first = rows.read_text()
    measured: list[str] = []
    real = evaluating.evaluate

    def counting(*args: Any, **options: Any) -> Any:
        tell = options["progress"]
        return real(*args, **options | {"progress": lambda *told: (measured.append(told[0]), tell(*told))})

    monkeypatch.setattr(evaluating, "evaluate", counting)
    assert main(["evaluate", str(run), "--levels", "white_noise=0.1", "brightness=1", "fgsm=8/255"]) == 0
    assert rows.read_text().startswith(first)
    assert set(measured) == {"brightness 1", "fgsm 0.0313725"}
    assert "FGSM l∞ ε=8/255" in capsys.readouterr().out


def test_an_interrupted_evaluation_is_kept_and_goes_on(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    def interrupt(self: Lines, work: Any) -> None:
        if work.label == "white_noise 0.2":
            raise KeyboardInterrupt

    monkeypatch.setattr(Lines, "step", interrupt)
    assert main(["evaluate", str(run)]) == 130
    assert "the same command goes on" in told(capsys)
    assert [row["level"] for row in load_report(run / "evaluation-pixel").rows] == [0.0, 0.1]
    monkeypatch.undo()
    assert main(["evaluate", str(run)]) == 0
    assert len(load_report(run / "evaluation-pixel").rows) == 7


def test_progress_is_told_with_the_time_left() -> None:
    assert evaluating.describe(evaluating.Work("pgd 0.1", 30, 120), 10.0) == " 25%  pgd 0.1  0:30 left"


def test_authors_protocol_with_the_networks_own_normalisation_is_flagged(run: Path, capsys: Any) -> None:
    assert main(["evaluate", str(run), "--protocol", "authors", "--suite", "paper"]) == 0
    out = capsys.readouterr().out
    assert "note: noise added after the model's own normalisation" in out
    assert "protocol authors(std=0.37" in out
    assert "left out: pgd7" in out
    assert (run / "evaluation-authors" / "rows.jsonl").exists()


def test_a_checkpoint_and_another_seed_have_their_own_folders(run: Path) -> None:
    checkpoint = next((run / "checkpoints").glob("step-*.safetensors"))
    for arguments in ([str(checkpoint)], [str(run), "--seed", "3"]):
        assert main(["evaluate", *arguments, "--levels", "white_noise=0.1"]) == 0
    folders = {path.name for path in run.glob("evaluation-*")}
    assert folders == {f"evaluation-pixel-{checkpoint.stem}", "evaluation-pixel-seed3"}


def test_a_limit_measures_fewer_in_a_folder_of_its_own(run: Path, capsys: Any) -> None:
    assert main(["evaluate", str(run), "--levels", "white_noise=0.1", "--limit", "40"]) == 0
    assert main(["evaluate", str(run), "--levels", "white_noise=0.1", "--limit", "20"]) == 0
    fewer, more = (load_report(run / f"evaluation-pixel-of{limit}") for limit in (20, 40))
    assert (fewer.row("clean", 0.0)["n"], more.row("clean", 0.0)["n"]) == (20, 40)
    assert main(["evaluate", str(run), "--limit", "0"]) == 2
    assert "--limit: expected a number of examples" in told(capsys)


@pytest.mark.filterwarnings("ignore:took the wrapper")
def test_weights_alone_need_a_model_data_and_a_normalisation(
    run: Path, tmp_path: Path, capsys: Any, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    weights = find_candidate(Request(str(run))).model.state_dict()
    bare = {f"module.{name}": value for name, value in weights.items() if not name.startswith("normalise.")}
    torch.save(bare, tmp_path / "net.pt")
    command = ["evaluate", "net.pt", "--levels", "white_noise=0.1"]
    assert main(command) == 2
    assert "expected --model NAME" in told(capsys)
    command += ["--model", "small_conv", "--option", "width=0.25"]
    assert main(command) == 2
    assert "expected --data NAME" in told(capsys)
    command += ["--data", "digits"]
    assert main(command) == 2
    assert "expected --normalisation data|authors|imagenet|none" in told(capsys)
    assert main([*command, "--normalisation", "data", "--name", "mine"]) == 0
    row = load_report(tmp_path / "runs" / "net" / "evaluation-pixel-digits").row("white_noise", 0.1)
    assert (row["scheme"], row["train_seed"], row["temperature"]) == ("mine", None, None)
    assert main(["evaluate", str(run), "--levels", "white_noise=0.1"]) == 0
    same = load_report(run / "evaluation-pixel").row("white_noise", 0.1)
    assert (row["accuracy"], row["nll"]) == (same["accuracy"], same["nll"])
    assert main([*command, "--normalisation", "none", "--out", "other"]) == 0
    other = load_report(Path("other")).row("white_noise", 0.1)
    assert other["nll"] != row["nll"]  # the normalisation does matter


def test_bad_files_are_refused(run: Path, tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "page.pt").write_text("<html>not found</html>")
    assert main(["evaluate", str(tmp_path / "page.pt"), "--model", "small_conv", "--data", "digits"]) == 3
    assert "expected weights that load without running code" in told(capsys)
    assert main(["evaluate", str(tmp_path / "nowhere")]) == 3
    assert "no such run or file" in told(capsys)
    assert main(["evaluate", str(tmp_path)]) == 2
    assert "expected the folder of a run" in told(capsys)
    weights = find_candidate(Request(str(run))).model.state_dict()
    weights["head.bias"] = weights["head.bias"] * torch.nan
    torch.save(weights, tmp_path / "nan.pt")
    command = ["--model", "small_conv", "--option", "width=0.25", "--data", "digits"]
    assert main(["evaluate", str(tmp_path / "nan.pt"), *command]) == 3
    assert "head.bias holds NaN" in told(capsys)
    best = next((run / "checkpoints").glob("best-*.safetensors"))
    best.write_bytes(best.read_bytes()[:-1])
    assert main(["evaluate", str(run)]) == 3
    assert "checksum" in told(capsys)
    assert not list(tmp_path.rglob("evaluation-*"))  # nothing is written


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--suite", "quik"], "did you mean 'quick'"),
        (["--protocol", "pixels"], "did you mean 'pixel'"),
        (["--seed", "-1"], "seed"),
        (["--batch-size", "0"], "--batch-size: expected a whole number from 1 up"),
        (["--levels", "white_noise"], "expected NAME=LEVEL"),
        (["--levels", "white_nois=0.1"], "did you mean 'white_noise'"),
        (["--levels", "white_noise=-1"], "expected a level from 0"),
        (["--levels", "pgd=8"], "/255?"),
        (["--levels", "pgd=x"], "expected an eps"),
        (["--levels", "pgd(step=0)=0.1"], "above 0"),
        (["--levels", "pgd(stepz=1)=0.1"], "stepz"),
        (["--levels", "fog=6"], "expected a severity from 0 to 5"),
        (["--normalisation", "imgnet"], "--normalisation: expected"),
        (["--data", "digitz"], "did you mean 'digits'"),
        (["--data", "circles"], "other classes"),
    ],
)
def test_bad_flags_are_refused_before_anything_is_written(
    run: Path, flags: list[str], message: str, capsys: Any
) -> None:
    assert main(["evaluate", str(run), *flags]) == 2
    assert message in told(capsys)
    assert not list(run.glob("evaluation-*"))


def test_other_classes_are_refused_and_flagged_when_forced(run: Path, tmp_path: Path) -> None:
    candidate = find_candidate(Request(str(run)))
    assert candidate.flags == ()
    foreign = replace(candidate, flags=("other classes than it was trained for",))
    options = evaluating.Options(suite=None, more=parse_levels(["white_noise=0.1"]), out=tmp_path / "out")
    with pytest.raises(UsageError, match=r"other classes.*--force"):
        evaluating.measure(foreign, options)
    report, _, _ = evaluating.measure(foreign, replace(options, force=True))
    assert all("other classes than it was trained for" in row["flags"] for row in report.rows)


def test_a_folder_of_another_evaluation_is_refused_or_overwritten(run: Path, capsys: Any) -> None:
    out = str(run / "evaluation-pixel")
    command = ["evaluate", str(run), "--levels", "white_noise=0.1", "--out", out]
    assert main(command) == 0
    assert main([*command, "--seed", "1"]) == 2
    assert "seed: 0 there, 1 here" in told(capsys)
    assert main([*command, "--seed", "1", "--overwrite"]) == 0
    assert load_report(out).identity["seed"] == 1


def test_a_place_that_cannot_be_written_to(run: Path, tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "file").write_text("")
    assert (
        main(["evaluate", str(run), "--levels", "white_noise=0.1", "--out", str(tmp_path / "file" / "out")])
        == 5
    )
    assert "out: cannot write" in told(capsys)


def test_levels() -> None:
    cells = parse_levels(
        ["white_noise=0.1,0.2", "salt_and_pepper(per=value)=0.1", "pgd(norm=l2, steps=40)=1/2", "fog=1,5"]
    )
    assert [cell.level for cell in cells] == [0, 0.1, 0.2, 0.1, 0.5, 1, 5]
    assert [cells[place].perturbation for place in (1, 3, 4, 5)] == [
        WhiteNoise(), SaltAndPepper(per="value"), PGD("l2", steps=40), Corruption("fog"),
    ]  # fmt: skip


def test_published_networks(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    assert main(["evaluate", "timm:resnet18"]) == 2
    assert "expected --data NAME" in told(capsys)
    with pytest.raises(UsageError, match="published weights are known of: timm, torchvision"):
        published("tim:resnet18", Task(10))

    class Library:
        @staticmethod
        def create_model(name: str, pretrained: bool) -> torch.nn.Module:
            if name == "offline":
                raise OSError("no network")
            net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 5))
            net.pretrained_cfg = {"mean": (0.5,) * 3, "std": (0.25,) * 3}
            return net

    monkeypatch.setattr("nfm.cli.published.import_torchvision", lambda purpose: None)
    monkeypatch.setattr("nfm.cli.published.importlib.import_module", lambda name: Library)
    model = published("timm:some", Task(5, 3, 2))
    x = torch.rand(4, 3, 2, 2)
    assert torch.allclose(model(x), model.net((x - 0.5) / 0.25))
    with pytest.raises(EnvironmentProblem, match="cannot fetch"):
        published("timm:offline", Task(5, 3, 2))


@pytest.mark.parametrize("style", [[], ["--markdown"], ["--latex"], ["--csv"]])
def test_compare(runs: Path, style: list[str], capsys: Any) -> None:
    assert main(["compare", str(runs / "erm"), str(runs / "nfm"), *style]) == 0
    out = capsys.readouterr().out
    assert "erm" in out
    assert "nfm" in out
    assert "McNemar" in out or "p_holm" in out


def test_compare_refuses(runs: Path, tmp_path: Path, capsys: Any) -> None:
    assert main(["compare", str(tmp_path)]) == 2
    assert f"nfm evaluate {tmp_path}" in told(capsys)
    assert main(["compare", str(runs / "erm"), str(runs / "nfm"), "--baseline", "nmf"]) == 2
    assert "did you mean 'nfm'" in told(capsys)
    with pytest.raises(SystemExit) as stop:
        main(["compare", str(runs / "erm"), "--csv", "--latex"])
    assert stop.value.code == 2


def test_plot(runs: Path, tmp_path: Path, capsys: Any) -> None:
    command = ["plot", str(runs / "erm"), str(runs / "nfm")]
    for kind, suffix, magic in (
        ("curves", "svg", b"<?xml"),
        ("training", "pdf", b"%PDF"),
        ("images", "png", b"\x89PNG"),
    ):
        out = tmp_path / f"{kind}.{suffix}"
        assert main([*command, "--kind", kind, "--out", str(out)]) == 0
        assert out.read_bytes().startswith(magic)
    for flags, message in (
        (["--out", "a.gif"], "ends in .png"),
        (["--out", "a.png", "--kind", "curve"], "did you mean 'curves'"),
        (["--out", "a.png", "--kind", "corruptions"], "--suite full"),
        (["--out", "a.png", "--protocol", "authors"], "there are"),
    ):
        assert main([*command, *flags]) == 2
        assert message in told(capsys)


def test_report(runs: Path, tmp_path: Path, capsys: Any) -> None:
    out = tmp_path / "report.html"
    command = ["report", str(runs / "erm"), str(runs / "nfm"), "--out"]
    assert main([*command, str(out), "--title", "Digits <b>"]) == 0
    text = out.read_text(encoding="utf-8")
    assert "<title>Digits &lt;b&gt;</title>" in text
    assert "What the networks saw" in text
    assert main([*command, str(tmp_path / "report.txt")]) == 2
    assert "ends in .html" in told(capsys)
    assert main([*command, str(out / "inside.html")]) == 5
    assert "cannot write" in told(capsys)


# Of the ResNet-20 on the published files of CIFAR-10-C, percent, severities 1 to 5.
PUBLISHED_ACCURACIES = {
    "brightness": [91.67, 91.30, 90.56, 89.55, 86.88],
    "defocus_blur": [91.63, 89.75, 84.07, 73.86, 58.45],
    "jpeg_compression": [83.11, 77.41, 74.92, 72.95, 69.62],
    "saturate": [89.40, 86.91, 90.86, 88.49, 84.42],
}


@pytest.mark.slow
def test_a_published_network_has_its_published_numbers(real_data: Path, tmp_path: Path) -> None:
    weights = real_data / "weights" / "resnet20-12fca82f.th"
    levels = [f"{family}=1,2,3,4,5" for family in PUBLISHED_ACCURACIES]
    assert main(["evaluate", str(weights), "--levels", *levels, "--out", str(tmp_path)]) == 0
    report = load_report(tmp_path)
    assert report.row("clean", 0.0)["accuracy"] == pytest.approx(0.9173, abs=1e-4)  # its author's number
    for family, accuracies in PUBLISHED_ACCURACIES.items():
        found = [100 * report.row(family, float(severity))["accuracy"] for severity in range(1, 6)]
        assert found == pytest.approx(accuracies, abs=0.05)
