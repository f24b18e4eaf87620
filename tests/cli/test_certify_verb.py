"""certify on the command line: what it writes, goes on with, refuses, and with which code."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from nfm.cli import certifying, main
from nfm.cli.candidates import Candidate, Request, find_candidate
from nfm.cli.certifying import Options, certify_candidate, default_out
from nfm.data import load
from nfm.errors import UsageError
from nfm.evaluate.certificates import CertificationFolder
from nfm.evaluate.certify import Smoothing
from nfm.models import build
from nfm.results import read_rows
from nfm.train.progress import Lines

TRAIN = ["train", "--data", "digits", "--model", "mlp", "--epochs", "1", "--subset", "100"]
FEW = ["--sigma", "0.2", "--n", "50", "--n0", "10", "--limit", "6"]
FOLDER = "certified-sigma0.2-n50-n0_10"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("runs") / "nfm"
    assert main([*TRAIN, "--set", "model.options.units=16", "--scheme", "nfm", "--out", str(where)]) == 0
    return where


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    """Return a copy of a trained run."""
    shutil.copytree(trained, tmp_path / "nfm", ignore=shutil.ignore_patterns("certified-*"))
    return tmp_path / "nfm"


def told(capsys: pytest.CaptureFixture[str]) -> str:
    """Return the one line of an error."""
    lines = capsys.readouterr().err.splitlines()
    assert "Traceback" not in " ".join(lines)
    return lines[-1]


def test_certify_writes_rows_and_a_table_and_a_picture(run: Path, capsys: Any) -> None:
    picture = run.parent / "curve.svg"
    assert main(["certify", str(run), *FEW, "--radii", "0,0.1", "--picture", str(picture)]) == 0
    out = capsys.readouterr().out
    rows = list(read_rows(run / FOLDER / "rows.jsonl"))
    assert len(rows) == 6
    assert {row["unit"] for row in rows} == {"l2 of pixels in [0, 1]"}
    row = rows[0]
    assert (row["scheme"], row["data"], row["network"], row["sigma"], row["alpha"]) == (
        "nfm", "digits", "mlp", 0.2, 0.001,
    )  # fmt: skip
    assert row["sigma_normalised"] == pytest.approx(0.2 / load("digits").std[0], rel=1e-3)
    share = sum(row["correct"] and row["radius"] > 0.1 for row in rows) / 6
    assert f"{100 * share:.1f} [" in out
    assert "r>0.1" in out
    assert f"rows: {run / FOLDER}" in out
    assert picture.read_text().startswith("<?xml")


def test_certify_goes_on_and_adds(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["certify", str(run), *FEW]) == 0
    first = (run / FOLDER / "rows.jsonl").read_text()
    steps: list[int] = []
    real = certifying.certify

    def counting(*args: Any, **options: Any) -> Any:
        return real(*args, **options | {"progress": lambda *told: steps.append(told[1])})

    monkeypatch.setattr(certifying, "certify", counting)
    assert main(["certify", str(run), *FEW]) == 0
    assert steps == []
    assert main(["certify", str(run), *FEW[:-1], "8"]) == 0
    assert steps == [60, 120]  # two more examples, n + n0 draws each
    assert (run / FOLDER / "rows.jsonl").read_text().startswith(first)
    assert main(["certify", str(run), *FEW, "--overwrite"]) == 0
    assert (run / FOLDER / "rows.jsonl").read_text() == first


def test_an_interrupted_certification_is_kept(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    whole = run.parent / "whole"
    assert main(["certify", str(run), *FEW, "--out", str(whole)]) == 0

    def interrupt(self: Lines, work: Any) -> None:
        if work.step >= 120:
            raise KeyboardInterrupt

    monkeypatch.setattr(Lines, "step", interrupt)
    assert main(["certify", str(run), *FEW]) == 130
    assert "the examples certified so far are kept" in told(capsys)
    assert len(CertificationFolder(run / FOLDER).read().rows) == 2
    monkeypatch.undo()
    assert main(["certify", str(run), *FEW]) == 0
    assert (run / FOLDER / "rows.jsonl").read_bytes() == (whole / "rows.jsonl").read_bytes()


def test_several_runs_and_sigmas_stand_in_one_table(run: Path, capsys: Any) -> None:
    checkpoint = next((run / "checkpoints").glob("step-*.safetensors"))
    picture = run.parent / "curves.png"
    assert (
        main(
            ["certify", "--sigma", "0.1,0.2", *FEW[2:], str(run), str(checkpoint), "--picture", str(picture)]
        )
        == 0
    )
    out = capsys.readouterr().out
    assert out.count("rows: ") == 4
    assert sum(line.startswith("nfm") for line in out.splitlines()) == 4
    names = [f"certified-sigma{sigma}-n50-n0_10" for sigma in ("0.1", "0.2")]
    names += [f"{name}-{checkpoint.stem}" for name in names]
    assert {path.name for path in run.glob("certified-*")} == set(names)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--sigma", "0"], 2, "sigma: expected a deviation above 0"),
        (["--sigma", "nan"], 2, "sigma: expected a deviation above 0"),
        (["--sigma", "0.1;0.2"], 2, "--sigma: expected numbers with commas between them"),
        (["--radii", ""], 2, "--radii: expected numbers"),
        (["--alpha", "1.5"], 2, "alpha: expected"),
        (["--n", "5"], 2, "n: expected at least 10 draws"),
        (["--n0", "0"], 2, "n0: expected"),
        (["--limit", "0"], 2, "limit: expected"),
        (["--radii=-1"], 2, "radii: expected lengths"),
        (["--batch-size", "0"], 2, "--batch-size: expected"),
        (["--seed", "-1"], 2, "seed: expected"),
        (["--picture", "curve.txt"], 2, "expected a path that ends in"),
        (["--normalisation", "imagnet"], 2, "--normalisation: expected"),
        (["--sigma", "0.1,0.2", "--out", "x"], 2, "--out: expected one RUN and one --sigma"),
        (["--data", "no_such_data"], 2, "no_such_data"),
    ],
)
def test_refusals(trained: Path, arguments: list[str], code: int, message: str, capsys: Any) -> None:
    assert main(["certify", str(trained), *FEW, *arguments]) == code
    assert message in told(capsys)


def test_missing_runs_and_foreign_folders(run: Path, capsys: Any) -> None:
    assert main(["certify", str(run / "nowhere"), *FEW]) == 3
    assert "no such run or file" in told(capsys)
    assert main(["certify", str(run), *FEW, "--out", str(run / "mine")]) == 0
    assert main(["certify", str(run), *FEW, "--seed", "1", "--out", str(run / "mine")]) == 2
    assert "holds another certification (seed: 0 there, 1 here)" in told(capsys)
    (run / "mine" / "certified.json").write_text("{")
    assert main(["certify", str(run), *FEW, "--out", str(run / "mine")]) == 3
    assert "certified.json: expected the identity" in told(capsys)
    (run / "full").write_text("a file")
    assert main(["certify", str(run), *FEW, "--out", str(run / "full")]) == 5
    assert "out: cannot write to" in told(capsys)


def test_weights_that_are_not_finite_are_refused(
    run: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(request: Request) -> Candidate:
        candidate = find_candidate(request)
        with torch.no_grad():
            next(candidate.model.parameters()).fill_(torch.nan)
        return candidate

    monkeypatch.setattr("nfm.cli.candidates.find_candidate", broken)
    assert main(["certify", str(run), *FEW]) == 2
    assert "refused: NaN logits" in told(capsys)
    assert main(["certify", str(run), *FEW, "--force"]) == 4
    assert "not finite under noise" in told(capsys)


def test_flags_and_folders_of_a_candidate(tmp_path: Path) -> None:
    data = load("digits")
    model = build("mlp", num_classes=10, in_channels=1, image_size=8, mean=data.mean, std=data.std, units=8)
    candidate = Candidate(model, data, "erm", "mlp", tmp_path, "other", flags=("other classes",))
    how = Smoothing(0.25, n=20, alpha=0.01)
    with pytest.raises(UsageError, match="refused: other classes; --force certifies it"):
        certify_candidate(candidate, how, Options(limit=2))
    found, out = certify_candidate(candidate, how, Options(limit=2, force=True, seed=3))
    assert found.rows[0]["flags"] == ["other classes"]
    assert out == tmp_path / "certified-sigma0.25-n20-alpha0.01-other-seed3"
    assert default_out(candidate, Smoothing(0.5), 0) == tmp_path / "certified-sigma0.5-n10000-other"
    assert "note: other classes" in certifying.show([found], None)
    assert json.loads((out / "certified.json").read_text())["n"] == 20


def test_an_evaluation_and_a_certification_live_side_by_side(run: Path, capsys: Any) -> None:
    """What compares evaluations does not trip over certificates."""
    assert main(["certify", str(run), *FEW]) == 0
    assert main(["evaluate", str(run), "--levels", "white_noise=0.1"]) == 0
    assert main(["compare", str(run)]) == 0
    assert main(["compare", str(run / FOLDER)]) == 3
    assert "expected rows of an evaluation" in told(capsys)
