"""Every example runs, as a user would run it, and is short."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import nfm.data

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))
PACK = next(path for path in EXAMPLES if path.stem == "pack_images")


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 4


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs(path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(path)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_is_short(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 60


def pack(*arguments: str) -> None:
    """Pack images as the command does; in this process, for torch takes seconds to import."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [str(PACK), *arguments])
        runpy.run_path(str(PACK))


GREYS = {"ash": 20, "bone": 120, "chalk": 220}  # three training and two test images each


@pytest.fixture
def greys(tmp_path: Path) -> str:
    for name, grey in GREYS.items():
        for part, count in (("train", 3), ("val", 2)):
            folder = tmp_path / "greys" / part / name
            folder.mkdir(parents=True)
            for number in range(count):
                Image.new("L", (40, 30), grey + 5 * number).save(folder / f"{number}.png")
    return f"imagefolder:{tmp_path / 'greys'}"


@pytest.mark.parametrize(
    ("options", "train", "test", "classes"),
    [
        (["--limit", "2", "1", "--classes", "chalk", "ash"], 2, 1, ("ash", "chalk")),
        (["--classes", "bone"], 3, 2, ("bone",)),
        ([], 3, 2, tuple(GREYS)),  # without options nothing is left out, or the others would tell nothing
    ],
)
def test_packing_takes_the_first_images_of_the_classes_asked_for(
    greys: str, tmp_path: Path, options: list[str], train: int, test: int, classes: tuple[str, ...]
) -> None:
    pack(greys, str(tmp_path / "greys.npz"), "16", *options)
    data = nfm.data.load(f"npz:{tmp_path / 'greys.npz'}", validation=0)
    assert data.classes == classes
    for part, count in ((data.train, train), (data.test, test)):
        assert part.shape == (3, 16, 16)
        means = part.decoded().images.float().mean(dim=(1, 2, 3))  # type: ignore[attr-defined]
        expected = [GREYS[name] + 5 * number for name in classes for number in range(count)]
        assert means.tolist() == pytest.approx(expected, abs=1)
        assert part.labels.tolist() == [label for label in range(len(classes)) for _ in range(count)]


def test_packing_refuses_a_class_that_is_not_there(
    greys: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        pack(greys, str(tmp_path / "greys.npz"), "16", "--classes", "ash", "snow")
    assert "has no class 'snow'; it has: ash, bone, chalk" in capsys.readouterr().err
    assert not (tmp_path / "greys.npz").exists()


def test_packing_takes_tiny_imagenet_as_it_is_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Labels of its test images are in a table; images of the right size are kept to the byte, no others."""
    root = tmp_path / "tiny-imagenet-200"
    (root / "val" / "images").mkdir(parents=True)
    for label, name in enumerate(("n01", "n02")):
        (root / "train" / name / "images").mkdir(parents=True)
        image = Image.new("RGB", (64, 64), (50 + 100 * label, 0, 0))
        image.save(root / "train" / name / "images" / f"{name}_0.JPEG", quality=60)
        image.save(root / "val" / "images" / f"val_{label}.JPEG", quality=60)
    (root / "val" / "val_annotations.txt").write_text("val_0.JPEG\tn01\nval_1.JPEG\tn02\n")
    monkeypatch.setenv("NFM_DATA", str(tmp_path))
    for side, kept in (("64", True), ("32", False)):
        pack("tiny-imagenet", str(tmp_path / "tiny.npz"), side, "--classes", "n02")
        arrays = np.load(tmp_path / "tiny.npz")
        files = [root / "train/n02/images/n02_0.JPEG", root / "val/images/val_1.JPEG"]
        assert (arrays["jpeg"].tobytes() == b"".join(file.read_bytes() for file in files)) is kept
        assert arrays["split"].tolist() == ["train", "val"]
        assert arrays["y"].tolist() == [0, 0]
