"""--out of evaluate and certify: what is not theirs is neither written to nor cleared."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from nfm.cli import main
from nfm.config.runs import load_run

TRAIN = ["train", "--data", "digits", "--model", "mlp", "--epochs", "1", "--subset", "100"]
VERBS = {
    "evaluate": ["--levels", "white_noise=0.1", "--limit", "20"],
    "certify": ["--sigma", "0.2", "--n", "50", "--n0", "10", "--limit", "2"],
}
HEADS = {"evaluate": "identity.json", "certify": "certified.json"}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("runs") / "erm"
    assert main([*TRAIN, "--set", "model.options.units=16", "--scheme", "erm", "--out", str(where)]) == 0
    return where


def files(folder: Path) -> dict[str, bytes]:
    """Return all files beneath `folder` with their content."""
    found = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def told(capsys: pytest.CaptureFixture[str]) -> str:
    lines = capsys.readouterr().err.splitlines()
    assert "Traceback" not in " ".join(lines)
    return lines[-1]


@pytest.mark.parametrize("more", [[], ["--overwrite"]])
@pytest.mark.parametrize("verb", VERBS)
def test_a_run_is_never_written_to(
    trained: Path, tmp_path: Path, verb: str, more: list[str], capsys: Any
) -> None:
    run = tmp_path / "run"
    shutil.copytree(trained, run)
    before = files(run)
    assert main([verb, str(run), *VERBS[verb], "--out", str(run), *more]) == 2
    assert "is a trained run" in told(capsys)
    assert files(run) == before
    load_run(run)


@pytest.mark.parametrize("verb", VERBS)
def test_a_run_stays_even_with_a_head_of_ours_in_it(
    trained: Path, tmp_path: Path, verb: str, capsys: Any
) -> None:
    run, own = tmp_path / "run", tmp_path / "own"
    shutil.copytree(trained, run)
    assert main([verb, str(run), *VERBS[verb], "--out", str(own)]) == 0
    shutil.copy(own / HEADS[verb], run)
    before = files(run)
    assert main([verb, str(run), *VERBS[verb], "--out", str(run), "--overwrite"]) == 2
    assert "is a trained run" in told(capsys)
    assert files(run) == before


@pytest.mark.parametrize("more", [[], ["--overwrite"]])
@pytest.mark.parametrize("verb", VERBS)
def test_a_folder_of_something_else_is_never_written_to(
    trained: Path, tmp_path: Path, verb: str, more: list[str], capsys: Any
) -> None:
    out = tmp_path / "photos"
    out.mkdir()
    (out / "precious.txt").write_text("x")
    assert main([verb, str(trained), *VERBS[verb], "--out", str(out), *more]) == 2
    assert "holds other files" in told(capsys)
    (out / HEADS[verb]).write_text('{"passport": 1}')
    before = files(out)
    assert main([verb, str(trained), *VERBS[verb], "--out", str(out), *more]) == 2
    assert "other than those of" in told(capsys)
    assert files(out) == before


@pytest.mark.parametrize("verb", VERBS)
def test_overwrite_clears_what_is_its_own_and_nothing_else(trained: Path, tmp_path: Path, verb: str) -> None:
    out = tmp_path / "out"
    command = [verb, str(trained), *VERBS[verb], "--out", str(out)]
    assert main([*command, "--seed", "1"]) == 0
    stale = set(files(out))
    (out / "notes.txt").write_text("mine")
    (out / "outcomes").mkdir(exist_ok=True)
    (out / "outcomes" / "mine.txt").write_text("mine")
    assert main([*command, "--seed", "2"]) == 2
    assert main([*command, "--seed", "2", "--overwrite"]) == 0
    assert set(files(out)) == stale | {"notes.txt", "outcomes/mine.txt"}
    assert main([*command, "--seed", "2"]) == 0


def test_an_empty_folder_and_hidden_files_will_do(trained: Path, tmp_path: Path) -> None:
    (tmp_path / ".identity.json.7.tmp").write_text("{")  # what a killed process leaves
    assert main(["evaluate", str(trained), *VERBS["evaluate"], "--out", str(tmp_path)]) == 0
