"""The command line: help without torch, verbs that answer, and errors as one line with an exit code."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from nfm.cli import VERBS, main


def test_help_imports_no_torch() -> None:
    code = "import sys, nfm.cli; nfm.cli.parser().format_help(); print('torch' in sys.modules)"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "False"
    )


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main([verb, "--help"])
    assert stop.value.code == 0
    assert f"usage: nfm {verb}" in capsys.readouterr().out


def test_help_lists_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    told = capsys.readouterr().out
    assert all(f"  {verb} " in told for verb in VERBS)


def test_unknown_verb_is_refused_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["tran"])
    assert stop.value.code == 2
    assert "did you mean 'train'?" in capsys.readouterr().err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("nfm 0.")


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("schemes", ["manifold_mixup", "nfm_authors_high"]),
        ("models", ["preact_resnet18", "timm:NAME"]),
        ("data", ["digits", "cifar10"]),
        ("recipes", ["cifar10/paper-nfm"]),
    ],
)
def test_list(what: str, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", what]) == 0
    told = capsys.readouterr().out
    assert all(word in told for word in words)


def test_show_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "model", "preact_resnet18", "--option", "width=0.25"]) == 0
    told = capsys.readouterr().out
    assert "701,018" in told
    assert "default sites: input, stage1, stage2, stage3" in told


def test_show_refuses_an_unknown_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "model", "preact_resnet18", "--option", "widht=1"]) == 2
    assert "did you mean 'width'?" in capsys.readouterr().err


def test_copy_hands_out_a_recipe_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "mine.toml"
    assert main(["copy", "digits/nfm", str(target)]) == 0
    assert main(["check", str(target)]) == 0
    assert main(["copy", "digits/nfm", str(target)]) == 2
    assert "is there already" in capsys.readouterr().err


def test_check_tells_all_errors_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = tmp_path / "bad.toml"
    recipe.write_text('[data]\nname = "digitz"\n[train]\nepochs = -1\n[method]\nschema = "nfm"\n')
    assert main(["check", str(recipe)]) == 2
    told = capsys.readouterr().err
    assert "3 errors" in told
    assert all(word in told for word in ("digits", "epochs", "did you mean 'scheme'?"))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "digits"
    flags = [
        "--data",
        "digits",
        "--model",
        "small_conv",
        "--scheme",
        "nfm",
        "--epochs",
        "1",
        "--subset",
        "100",
    ]
    assert main(["train", *flags, "--set", "model.options.width=0.25", "--out", str(out)]) == 0
    return out


def test_predict(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a.png", "b.png"):
        Image.fromarray(np.full((20, 20, 3), 128, dtype=np.uint8)).save(tmp_path / name)
    capsys.readouterr()
    assert main(["predict", str(trained), str(tmp_path), "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(lines) == 2
    assert lines[0]["classes"] == lines[1]["classes"]  # the same pixels
    assert len(lines[0]["classes"]) == 3


def test_predict_refuses_what_is_no_image(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "page.png").write_text("<html>not found</html>")
    assert main(["predict", str(trained), str(tmp_path / "page.png")]) == 3
    assert main(["predict", str(trained), str(tmp_path / "none.png")]) == 3
    assert main(["predict", str(tmp_path), str(tmp_path / "page.png")]) == 2
    assert capsys.readouterr().err.count("error: ") == 3


def test_evaluate_writes_rows_and_goes_on(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", str(trained)]) == 0
    first = capsys.readouterr().out
    assert "protocol pixel" in first
    assert main(["evaluate", str(trained)]) == 0
    assert capsys.readouterr().out == first


def test_demo_refuses_no_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--seeds", "0"]) == 2
    assert "at least 1 seed" in capsys.readouterr().err


def test_demo_writes_runs_rows_table_and_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--seeds", "1", "--epochs", "1", "--out", str(tmp_path)]) == 0
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert {row["scheme"] for row in rows} == {"erm", "manifold_mixup", "nfm"}
    assert "manifold_mixup" in capsys.readouterr().out
    assert main(["compare", str(tmp_path / "erm-0"), str(tmp_path / "nfm-0")]) == 0
    assert "σ=0.3" in capsys.readouterr().out
