"""The verb: what it leaves can be trained as it is, and gives the very run of the trial; errors are one line."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from tuning import TINY, rows_in

from nfm.cli import main
from nfm.cli.levels import parse_levels
from nfm.config.read import read_config
from running import assert_different_result, assert_same_result

SMALL = [
    "--data",
    "digits",
    *(word for key in [*TINY, "train.checkpoint_seconds=60"] for word in ("--set", key)),
]
LEVELS = ["--levels", "white_noise=0.3", "salt_and_pepper(per=value)=0.2"]


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("verb") / "study"
    assert main(["tune", *SMALL, *LEVELS, "--trials", "2", "--out", str(out), "--device", "cpu"]) == 0
    return out


def test_it_leaves_rows_a_picture_and_recipes(study: Path) -> None:
    assert [row["kind"] for row in rows_in(study)] == ["reference", "trial", "trial"]
    assert set(rows_in(study)[0]["cells"]) == {"clean 0", "white_noise 0.3", "salt_and_pepper(per=value) 0.2"}
    assert (study / "pareto.png").read_bytes().startswith(b"\x89PNG")
    assert (study / "front" / "01.toml").exists()


def test_a_recipe_of_the_front_gives_the_run_of_its_trial(study: Path, tmp_path: Path) -> None:
    recipe = study / "front" / "01.toml"
    trial = int(re.search(r"trial (\d+)", recipe.read_text())[1])  # type: ignore[index]
    own = study / "trials" / f"{trial:03d}"
    assert main(["train", str(recipe), "--out", str(tmp_path / "again"), "--device", "cpu"]) == 0
    assert_same_result(tmp_path / "again", own)
    assert_different_result(tmp_path / "again", study / "trials" / "erm")


def test_it_goes_on_tells_the_front_and_what_to_do_next(
    study: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = rows_in(study)
    (study / "front" / "77.toml").write_text("of an older front")
    assert main(["tune", *SMALL, *LEVELS, "--trials", "2", "--out", str(study), "--device", "cpu"]) == 0
    told = capsys.readouterr().out
    assert rows_in(study) == before
    assert "Pareto front on validation, accuracy in %: digits, 197 examples" in told
    assert "trials: 2 (2 complete)" in told
    train, evaluate = re.findall(r"^  nfm (.*)$", told, re.MULTILINE)
    assert train.startswith(f"train {study}/front/0")
    _, folder, _, *levels = shlex.split(evaluate)
    assert folder == f"{study}/chosen"
    assert parse_levels(levels) == parse_levels(LEVELS[1:])
    assert not (study / "front" / "77.toml").exists()
    chosen = read_config(Path(train.split()[1]))
    assert chosen.method.noise.keys() == {"add", "mult"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--levels", "white_nose=0.1"], "--levels: unknown 'white_nose'.*did you mean 'white_noise'"),
        (["--levels", "clean=0"], "expected a perturbation with a level above 0"),
        (["--trials", "0"], "trials: expected at least 1, got 0"),
        (["--scheme", "cutmix"], "scheme 'cutmix': expected one part with noise"),
        (["--set", "data.validation=0"], "data.validation: expected a share"),
        (["--set", "method.alfa=1"], "unknown key 'method.alfa'.*did you mean 'alpha'"),
        (["no/such"], "no recipe 'no/such'"),
    ],
)
def test_errors_are_one_line_before_anything_is_written(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tune", *words, "--out", str(tmp_path / "study")]) == 2
    told = capsys.readouterr().err
    assert re.search(message, told)
    assert told.count("\n") == 1
    assert not (tmp_path / "study").exists()


def test_a_file_in_the_place_of_the_folder_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "study").write_text("a file")
    assert main(["tune", *SMALL, "--trials", "1", "--out", str(tmp_path / "study")]) == 5
    assert "out: cannot write to" in capsys.readouterr().err


@pytest.mark.slow
def test_the_default_study_gets_better_than_plain_training(tmp_path: Path) -> None:
    assert main(["tune", "--out", str(tmp_path / "study"), "--device", "cpu"]) == 0
    reference, *trials = rows_in(tmp_path / "study")
    assert len(trials) == 24
    assert max(row["robust"] for row in trials if row["front"]) > reference["robust"]
