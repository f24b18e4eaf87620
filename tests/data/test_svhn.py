"""SVHN through scipy's reader."""

import hashlib
import io
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from nfm.data import load
from nfm.data import svhn as svhn_module
from nfm.data.files import Pin
from nfm.data.svhn import parse_mat
from nfm.errors import DataError

GENERATOR = np.random.default_rng(0)
IMAGES = GENERATOR.integers(0, 256, (32, 32, 3, 12), dtype=np.uint8)
LABELS = np.arange(1, 13, dtype=np.uint8).clip(max=10)[:, None]


def mat(**arrays: np.ndarray) -> bytes:
    stream = io.BytesIO()
    savemat(stream, arrays, do_compression=True)
    return stream.getvalue()


def test_the_layout_is_turned_and_ten_is_zero() -> None:
    examples = parse_mat(mat(X=IMAGES, y=LABELS), Path("x"))
    assert examples.images.shape == (12, 3, 32, 32)
    assert examples.images[5, 2, 7, 9] == IMAGES[7, 9, 2, 5]
    assert examples.labels.tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 0, 0]


@pytest.mark.parametrize(
    "content",
    [
        mat(X=IMAGES),
        mat(y=LABELS),
        mat(X=IMAGES[:31], y=LABELS),
        mat(X=IMAGES.astype(float), y=LABELS),
        mat(X=IMAGES, y=LABELS[:11]),
        mat(X=IMAGES, y=LABELS)[:500],
        b"<html>not found</html>",
    ],
)
def test_other_files_are_refused(content: bytes) -> None:
    with pytest.raises(DataError, match="x: expected"):
        parse_mat(content, Path("x"))


def test_files_are_found_and_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = mat(X=IMAGES, y=LABELS)
    digest = hashlib.sha256(content).hexdigest()
    monkeypatch.setattr(svhn_module, "TRAIN", Pin("train_32x32.mat", digest))
    (tmp_path / "svhn").mkdir()
    for name in ("train", "test"):
        (tmp_path / "svhn" / f"{name}_32x32.mat").write_bytes(content)
    with pytest.raises(DataError, match=r"test_32x32\.mat: expected sha256 cdce80df"):
        load("svhn", root=tmp_path)
    monkeypatch.setattr(svhn_module, "TEST", Pin("test_32x32.mat", digest))
    data = load("svhn", root=tmp_path, validation=0)
    assert len(data.train) == len(data.test) == 12


def test_a_download_fetches_both_files(bare_machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = mat(X=IMAGES, y=LABELS)
    asked: list[str] = []

    def fetch(url: str, target: Path, pin: Pin) -> None:
        asked.append(url)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)

    monkeypatch.setattr(svhn_module, "fetch", fetch)
    for name in ("TRAIN", "TEST"):
        pin = Pin(getattr(svhn_module, name).name, hashlib.sha256(content).hexdigest())
        monkeypatch.setattr(svhn_module, name, pin)
    data = load("svhn", download=True, validation=0)
    assert data.source["folder"] == str(bare_machine / "svhn")
    assert asked == [svhn_module.ADDRESS + name for name in ("train_32x32.mat", "test_32x32.mat")]
