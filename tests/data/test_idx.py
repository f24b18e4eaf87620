"""MNIST's format, compressed or not, and what is refused."""

import gzip
import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from nfm.data import DataSet, Request, load
from nfm.data import idx as idx_module
from nfm.data.examples import channel_statistics
from nfm.data.files import Pin
from nfm.data.idx import load_idx, parse_idx, unpacked, where
from nfm.data.idx_files import FASHION, FILES, MNIST, IdxSet
from nfm.errors import DataError

GENERATOR = np.random.default_rng(0)
IMAGES = GENERATOR.integers(0, 256, (15, 28, 28), dtype=np.uint8)
LABELS = GENERATOR.integers(0, 10, 15, dtype=np.uint8)


def idx(array: np.ndarray) -> bytes:
    head = [0x0800 + array.ndim, *array.shape]
    return b"".join(number.to_bytes(4, "big") for number in head) + array.tobytes()


CONTENTS = dict(zip(FILES, map(idx, (IMAGES[:10], LABELS[:10], IMAGES[10:], LABELS[10:])), strict=True))
SMALL = replace(
    MNIST,
    contents=tuple(Pin(name, hashlib.sha256(content).hexdigest()) for name, content in CONTENTS.items()),
)


def write(folder: Path, ending: str = "") -> None:
    folder.mkdir(parents=True)
    for name, content in CONTENTS.items():
        (folder / (name + ending)).write_bytes(gzip.compress(content, mtime=7) if ending else content)


def request(*places: Path, download: bool = False) -> Request:
    return Request(argument="", places=places, seed=0, download=download)


def assert_small(data: DataSet) -> None:
    assert np.array_equal(data.train.images.numpy()[:, 0], IMAGES[:10])  # type: ignore[attr-defined]
    assert np.array_equal(data.test.images.numpy()[:, 0], IMAGES[10:])  # type: ignore[attr-defined]
    assert data.train.labels.tolist() == LABELS[:10].tolist()
    assert data.test.labels.tolist() == LABELS[10:].tolist()


@pytest.mark.parametrize("ending", ["", ".gz"])
@pytest.mark.parametrize("folder", ["mnist", "MNIST/raw"])
def test_files_are_read_compressed_or_not(folder: str, ending: str, tmp_path: Path) -> None:
    write(tmp_path / folder, ending)
    assert_small(load_idx(SMALL, request(tmp_path)))
    assert where(SMALL, (tmp_path,)) == str(tmp_path / folder)


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_a_changed_byte_is_refused(ending: str, tmp_path: Path) -> None:
    write(tmp_path / "mnist", ending)
    name = FILES[3]
    changed = bytearray(CONTENTS[name])
    changed[-1] ^= 1
    (tmp_path / "mnist" / (name + ending)).write_bytes(gzip.compress(changed) if ending else changed)
    with pytest.raises(DataError, match=rf"{name}: expected sha256"):
        load_idx(SMALL, request(tmp_path))


def test_a_torn_or_swollen_gz_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.gz"
    path.write_bytes(gzip.compress(bytes(1000))[:-9])
    with pytest.raises(DataError, match=r"whole \.gz"):
        unpacked(path)
    path.write_bytes(b"<html>")
    with pytest.raises(DataError, match=r"whole \.gz"):
        unpacked(path)
    monkeypatch.setattr(idx_module, "LARGEST", 999)
    path.write_bytes(gzip.compress(bytes(1000)))
    with pytest.raises(DataError, match="got more"):
        unpacked(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "another beginning"),
        (idx(LABELS), "another beginning"),
        (idx(IMAGES)[:-1], "the header promises"),
        (idx(IMAGES) + b"x", "the header promises"),
        (b"\0\0\x08\x03" + b"\xff" * 12 + b"x", "the header promises"),
    ],
)
def test_headers_that_do_not_fit_are_refused(content: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        parse_idx(content, 3, Path("x"))


def test_a_download_fetches_the_compressed_files(
    tmp_path: Path, bare_machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, Pin]] = []

    def fetch(url: str, target: Path, pin: Pin) -> Path:
        asked.append((url, pin))
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(gzip.compress(CONTENTS[target.stem]))
        return target

    monkeypatch.setattr(idx_module, "fetch", fetch)
    data = load_idx(SMALL, request(tmp_path, download=True))
    assert_small(data)
    assert data.source["folder"] == str(bare_machine / "mnist")
    assert asked == [(MNIST.address + pin.name, pin) for pin in MNIST.packed]


DEBIAN = Path("/usr/share/datasets")


def test_debians_fashion_mnist() -> None:
    if where(FASHION, (DEBIAN,)) is None:
        pytest.skip("Debian's dataset-fashion-mnist is not installed")
    data = load("fashion_mnist", root=DEBIAN, validation=0)
    assert (len(data.train), len(data.test)) == (60_000, 10_000)
    mean, std = channel_statistics(data.train.images)  # type: ignore[attr-defined]
    assert np.allclose([*mean, *std], [*data.mean, *data.std], atol=1e-4)


@pytest.mark.parametrize("each", [MNIST, FASHION])
def test_the_tables_are_whole(each: IdxSet) -> None:
    pins = [*each.contents, *each.packed]
    assert len({pin.digest for pin in pins}) == 8
    assert all(len(pin.digest) == 64 for pin in pins)
    assert len(each.classes) == 10
