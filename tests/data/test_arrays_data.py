"""A user's own .npz files."""

import io
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from nfm.data import load
from nfm.errors import DataError

GENERATOR = np.random.default_rng(0)
PIXELS = GENERATOR.integers(0, 256, (20, 6, 5, 3), dtype=np.uint8)
LABELS = np.arange(20) % 4


def write(path: Path, **changes: object) -> str:
    arrays = {"x_train": PIXELS[:12], "y_train": LABELS[:12], "x_test": PIXELS[12:], "y_test": LABELS[12:]}
    kept = {name: array for name, array in {**arrays, **changes}.items() if array is not None}
    np.savez(path / "mine.npz", **kept)  # type: ignore[arg-type]
    return f"npz:{path / 'mine.npz'}"


@pytest.mark.parametrize("layout", ["last", "first", "grey"])
def test_images_of_any_layout(layout: str, tmp_path: Path) -> None:
    turned = {
        "last": PIXELS, "first": PIXELS.transpose(0, 3, 1, 2), "grey": PIXELS[..., 0]
    }[layout]  # fmt: skip
    data = load(write(tmp_path, x_train=turned[:12], x_test=turned[12:]), validation=0)
    expected = PIXELS.transpose(0, 3, 1, 2)[:, : 1 if layout == "grey" else 3]
    assert np.array_equal(data.train.images.numpy(), expected[:12])  # type: ignore[attr-defined]
    assert np.array_equal(data.test.images.numpy(), expected[12:])  # type: ignore[attr-defined]
    assert data.classes == ("0", "1", "2", "3")
    assert np.allclose(data.mean, expected[:12].mean((0, 2, 3)) / 255)
    assert len(data.source["sha256"]) == 64


def test_floats_and_vectors(tmp_path: Path) -> None:
    unit = PIXELS / 255
    data = load(write(tmp_path, x_train=unit[:12], x_test=unit[12:]), validation=0)
    assert data.train.images.dtype == torch.float32  # type: ignore[attr-defined]
    vectors = GENERATOR.normal(3, 2, (20, 7))
    data = load(write(tmp_path, x_train=vectors[:12], x_test=vectors[12:]), validation=0)
    assert data.shape == (7,)
    assert np.allclose(data.mean, vectors[:12].mean(0), atol=1e-5)
    assert np.allclose(data.std, vectors[:12].std(0), atol=1e-5)


def test_own_validation_classes_and_probabilities(tmp_path: Path) -> None:
    soft = np.full((12, 4), 0.25)
    name = write(
        tmp_path,
        x_validation=PIXELS[:4] ^ 1,
        y_validation=LABELS[:4],
        y_train=soft,
        classes=np.array(list("abcd")),
    )
    data = load(name)
    assert [len(data.train), len(data.validation), len(data.test)] == [12, 4, 8]
    assert data.classes == ("a", "b", "c", "d")
    assert data.train.labels.shape == (12, 4)
    assert (
        load(write(tmp_path, y_train=LABELS[:12, None]), validation=0).train.labels.tolist()
        == LABELS[:12].tolist()
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x_test": None}, "expected the array 'x_test'"),
        ({"y_train": LABELS[:11]}, "expected 12 labels in y_train, got 11"),
        ({"y_train": LABELS[:12] / 2}, "whole numbers or rows of probabilities"),
        ({"y_train": LABELS[:12] - 1}, "got -1 at index 0"),
        ({"y_test": LABELS[:8] + 1}, "from 0 to 3, got 4 at index 3"),
        ({"x_train": PIXELS[:12].astype(np.int64)}, "store pixels as uint8"),
        ({"x_train": PIXELS[:12].astype(float), "x_test": PIXELS[12:].astype(float)}, "levels 0..255"),
        ({"x_train": PIXELS[:12] / 128 - 1, "x_test": PIXELS[12:] / 128 - 1}, "look normalised"),
        ({"x_train": np.full((12, 7), np.nan), "x_test": np.zeros((8, 7))}, "at index 0"),
        ({"x_train": PIXELS[:12, :4]}, "x_test shaped like x_train"),
        ({"x_train": np.zeros((12, 5, 5, 5), np.uint8)}, "1 or 3 channels"),
        ({"x_train": np.zeros((12, 5), np.uint8)}, "1 or 3 channels"),
        ({"x_train": np.zeros((12, 5), complex)}, "got complex128"),
        ({"x_train": np.array([None] * 12)}, "dtype object"),
        ({"x_train": PIXELS[:0], "y_train": LABELS[:0]}, "expected at least one example"),
    ],
)
def test_bad_arrays_are_refused(changes: dict[str, object], message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message):
        load(write(tmp_path, **changes))


def test_shared_examples_are_a_warning(tmp_path: Path) -> None:
    both = np.concatenate([PIXELS[12:17], PIXELS[:3]])
    with pytest.warns(UserWarning, match="3 of 8 test examples are in the training part too"):
        load(write(tmp_path, x_test=both), validation=0)


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="expected a file"):
        load(f"npz:{tmp_path / 'none.npz'}")


def jpegs(size: tuple[int, int]) -> list[bytes]:
    found = []
    for number in range(10):
        stream = io.BytesIO()
        Image.new("RGB", size, (20 * number, 5, 9)).save(stream, "JPEG")
        found.append(stream.getvalue())
    return found


def pack(path: Path, size: tuple[int, int] = (16, 16), **changes: object) -> str:
    files = jpegs(size)
    arrays = {
        "jpeg": np.frombuffer(b"".join(files), np.uint8),
        "offset": np.r_[0, np.cumsum([len(each) for each in files])],
        "y": np.arange(10) % 2,
        "split": np.array(["train"] * 6 + ["val"] * 4),
        "classes": np.array(["x", "y"]),
    }
    kept = {name: array for name, array in {**arrays, **changes}.items() if array is not None}
    np.savez(path / "pack.npz", **kept)  # type: ignore[arg-type]
    return f"npz:{path / 'pack.npz'}"


@pytest.mark.parametrize(("size", "side"), [((16, 16), 16), ((300, 260), 224)])
def test_a_pack_of_encoded_images(size: tuple[int, int], side: int, tmp_path: Path) -> None:
    data = load(pack(tmp_path, size), validation=0)
    assert [len(data.train), len(data.test)] == [6, 4]
    assert data.shape == (3, side, side)
    assert abs(int(data.test.fetch(torch.tensor([3]))[0, 0, 0, 0]) - 180) < 5
    assert data.test.ids.tolist() == [6, 7, 8, 9]


def test_a_pack_with_a_test_part(tmp_path: Path) -> None:
    data = load(pack(tmp_path, split=np.array(["train"] * 4 + ["val"] * 2 + ["test"] * 4)))
    assert [len(data.train), len(data.validation), len(data.test)] == [4, 2, 4]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"offset": None}, "got no 'offset'"),
        ({"offset": np.arange(5)}, "11 rising offsets"),
        ({"offset": np.r_[np.arange(10)[::-1], 10]}, "rising offsets"),
        ({"offset": np.r_[np.arange(10), 10**9]}, "within the"),
        ({"y": np.arange(10)}, "from 0 to 1, got 2 at index 2"),
    ],
)
def test_a_pack_of_another_form_is_refused(changes: dict[str, object], message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message):
        load(pack(tmp_path, **changes), validation=0)


SHARED = Path(os.environ.get("NFM_DATA", Path(__file__).parents[3] / "shared" / "data"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "side", "count"), [("imagenette224_1500", 224, 1500), ("tiny_imagenet_restricted23", 64, 12650)]
)
def test_real_packs(name: str, side: int, count: int) -> None:
    if not (SHARED / f"{name}.npz").is_file():
        pytest.skip(f"no {name}.npz in {SHARED}; point NFM_DATA at it")
    data = load(f"npz:{SHARED / name}.npz", validation=0)
    assert len(data.train) + len(data.test) == count
    assert data.train.fetch(torch.arange(20)).shape == (20, 3, side, side)
