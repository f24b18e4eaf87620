"""nfm theory and nfm train --theory: rows, table, picture, and refusals in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from nfm.cli import main
from nfm.results import read_rows

TRAIN = [
    "train",
    "--data",
    "circles:100",
    "--model",
    "mlp",
    "--epochs",
    "2",
    "--set",
    "model.options.units=8",
]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a run that had a meter and one that had none."""
    where = tmp_path_factory.mktemp("theory")
    assert main([*TRAIN, "--scheme", "erm", "--out", str(where / "erm")]) == 0
    assert main([*TRAIN, "--scheme", "nfm", "--theory", "--out", str(where / "nfm")]) == 0
    return where


def test_several_runs_in_one_table_and_picture(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = runs / "both.svg"
    capsys.readouterr()
    assert main(["theory", str(runs / "erm"), str(runs / "nfm"), "--out", str(picture)]) == 0
    told = capsys.readouterr().out
    assert "jacobian_norm" in told
    assert picture.exists()
    rows = list(read_rows(runs / "both.jsonl"))
    epochs = {name: {row["epoch"] for row in rows if row["run"] == name} for name in ("erm", "nfm")}
    assert max(epochs["erm"]) == 2
    assert epochs["nfm"] >= {0, 1, 2}  # the meter's rows
    assert {row["site"] for row in rows} == {"input", "hidden1", "hidden2", "hidden3"}


def test_a_meter_of_another_yardstick_is_left_out(runs: Path) -> None:
    out = runs / "other.png"
    flags = [
        "--noise",
        "0.1,0.1",
        "--sites",
        "hidden1",
        "--examples",
        "16",
        "--steps",
        "0",
        "--out",
        str(out),
    ]
    assert main(["theory", str(runs / "nfm"), *flags]) == 0
    rows = list(read_rows(out.with_suffix(".jsonl")))
    assert {row["site"] for row in rows} == {"hidden1"}
    assert {row["noise"] for row in rows} == {"Noise(add=0.1, mult=0.1; rms 0.1, 0.1)"}
    assert 0 not in {row["epoch"] for row in rows}
    assert {row["margin"] for row in rows} == {None}


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--noise", "0.1"], "--noise: expected two levels"),
        (["--examples", "1"], "--examples, --steps: expected 2 and 0 or more"),
        (["--sites", "hiden1"], "no site 'hiden1' in MLP"),
        (["--out", "x.txt"], "expected a path that ends in"),
    ],
)
def test_bad_flags(runs: Path, flags: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["theory", str(runs / "erm"), *flags]) == 2
    assert message in capsys.readouterr().err


def test_no_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["theory", str(tmp_path)]) == 3
    assert "expected the folder of a run of `nfm train`" in capsys.readouterr().err
