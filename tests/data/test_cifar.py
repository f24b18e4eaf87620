"""The CIFARs in both layouts, packed, archived: small sets of the same form with checksums of their own."""

import hashlib
import lzma
import os
import pickle
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from nfm.data import DataSet, Request, load
from nfm.data import cifar as cifar_module
from nfm.data.cifar import load_cifar, read_binary, read_pickled, where
from nfm.data.cifar_files import AUTHORS_STD, CIFAR10, CIFAR100, Cifar, Layout
from nfm.data.examples import channel_statistics
from nfm.data.files import Pin
from nfm.data.pack import decode, is_pack
from nfm.errors import DataError

GENERATOR = np.random.default_rng(0)
# Smooth images, so that prediction is not idle, with both ends of the range.
RAMP = np.add.outer(np.arange(32), np.arange(32)) * 4
PIXELS = (
    (RAMP + GENERATOR.integers(-40, 300, (12, 3, 1, 1)) + GENERATOR.integers(0, 9, (12, 3, 32, 32))) % 256
).astype(np.uint8)
FINE, COARSE = GENERATOR.integers(0, 10, 12), GENERATOR.integers(0, 5, 12)


def pinned(name: str, content: bytes) -> Pin:
    return Pin(name, hashlib.sha256(content).hexdigest())


def pickled(cifar: Cifar, rows: slice) -> bytes:
    batch = {b"data": PIXELS[rows].reshape(-1, 3072), cifar.labels.encode(): FINE[rows].tolist()}
    return pickle.dumps({**batch, b"filenames": [b"x.png"]}, protocol=2)


def binary(cifar: Cifar, rows: slice) -> bytes:
    labels = np.stack([COARSE, FINE], 1)[rows, 2 - cifar.label_bytes :].astype(np.uint8)
    return np.concatenate([labels, PIXELS[rows].reshape(-1, 3072)], 1).tobytes()


def small(cifar: Cifar, folder: Path, layouts: str = "python binary") -> Cifar:
    """Write 8 training and 4 test images into `folder` and return a description with their checksums."""
    made = {}
    for name, write in (("python", pickled), ("binary", binary)):
        layout: Layout = getattr(cifar, name)
        contents = {pin.name: write(cifar, slice(0, 8)) for pin in layout.train[:1]}
        contents[layout.test.name] = write(cifar, slice(8, 12))
        pins = [pinned(*item) for item in contents.items()]
        made[name] = Layout(layout.folder, (pins[0],), pins[1])
        if name in layouts:
            for file, content in contents.items():
                (folder / layout.folder).mkdir(parents=True, exist_ok=True)
                (folder / layout.folder / file).write_bytes(content)
    return replace(cifar, **made)


def request(*places: Path, download: bool = False) -> Request:
    return Request(argument="", places=places, seed=0, download=download)


def assert_small(data: DataSet) -> None:
    images = torch.cat([data.train.images, data.test.images])  # type: ignore[attr-defined]
    assert np.array_equal(images.numpy(), PIXELS)
    assert torch.cat([data.train.labels, data.test.labels]).tolist() == FINE.tolist()
    assert data.train.ids.tolist() == list(range(8))
    assert len(data.validation) == 0


@pytest.mark.parametrize("layout", ["python", "binary"])
@pytest.mark.parametrize("cifar", [CIFAR10, CIFAR100], ids=["10", "100"])
def test_both_layouts_give_the_same_images(cifar: Cifar, layout: str, tmp_path: Path) -> None:
    made = small(cifar, tmp_path / "root", layout)
    data = load_cifar(made, request(tmp_path, tmp_path / "root"))
    assert_small(data)
    assert data.source["folder"].endswith(getattr(made, layout).folder)
    assert where(made, (tmp_path / "root",)) == data.source["folder"]


def test_the_folder_itself_may_be_the_root(tmp_path: Path) -> None:
    made = small(CIFAR10, tmp_path, "python")
    assert_small(load_cifar(made, request(tmp_path / made.python.folder)))


@pytest.mark.parametrize("layout", ["python", "binary"])
def test_a_changed_byte_is_refused_before_parsing(
    layout: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = small(CIFAR10, tmp_path, layout)
    path = tmp_path / getattr(made, layout).folder / getattr(made, layout).train[0].name
    content = bytearray(path.read_bytes())
    content[1000] ^= 1
    path.write_bytes(content)
    parsed: list[object] = []
    monkeypatch.setattr(cifar_module, "read_pickled", lambda *content: parsed.append(content))
    monkeypatch.setattr(cifar_module, "read_binary", lambda *content: parsed.append(content))
    with pytest.raises(DataError, match=rf"{path.name}: expected sha256"):
        load_cifar(made, request(tmp_path))
    assert parsed == []


def test_a_hostile_batch_is_refused_by_its_checksum_and_by_the_reader(tmp_path: Path) -> None:
    made = small(CIFAR10, tmp_path, "python")
    canary = tmp_path / "canary"
    hostile = b"cposix\nsystem\n(S'touch " + str(canary).encode() + b"'\ntR."
    path = tmp_path / made.python.folder / made.python.test.name
    path.write_bytes(hostile)
    with pytest.raises(DataError, match="expected sha256"):
        load_cifar(made, request(tmp_path))
    with pytest.raises(DataError, match=r"asks for posix\.system"):
        read_pickled(made, hostile, path)
    assert not canary.exists()


def test_batches_of_another_form_are_refused() -> None:
    wrong = {
        "shape": {"data": np.zeros((2, 7), np.uint8), "labels": [0, 1]},
        "kind": {"data": np.zeros((2, 3072)), "labels": [0, 1]},
        "no data": {"labels": [0]},
        "labels": {"data": np.zeros((2, 3072), np.uint8), "labels": [0]},
        "no labels": {"data": np.zeros((2, 3072), np.uint8)},
    }
    for batch in wrong.values():
        with pytest.raises(DataError, match="x: expected"):
            read_pickled(CIFAR10, pickle.dumps(batch, protocol=2), Path("x"))
    with pytest.raises(DataError, match="multiple of 3073"):
        read_binary(CIFAR10, bytes(3072), Path("x"))


def archived(made: Cifar, folder: Path, target: Path) -> Cifar:
    with tarfile.open(target / made.archive.name, "w:gz") as archive:
        archive.add(folder / made.python.folder, made.python.folder)
    return replace(made, archive=pinned(made.archive.name, (target / made.archive.name).read_bytes()))


def test_an_archive_is_extracted_into_the_cache(tmp_path: Path, bare_machine: Path) -> None:
    made = small(CIFAR100, tmp_path / "made", "python")
    made = archived(made, tmp_path / "made", tmp_path)
    data = load_cifar(made, request(tmp_path))
    assert_small(data)
    assert data.source["folder"] == str(bare_machine / "cifar-100-python")
    damaged = replace(made, archive=Pin(made.archive.name, "0" * 64))
    with pytest.raises(DataError, match="expected sha256 0000"):
        load_cifar(damaged, request(tmp_path))


def test_a_download_is_verified_and_extracted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "far").mkdir()
    made = small(CIFAR10, tmp_path / "made", "python")
    made = archived(made, tmp_path / "made", tmp_path / "far")
    asked: list[str] = []

    def fetch(url: str, target: Path, pin: Pin) -> Path:
        asked.append(url)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((tmp_path / "far" / pin.name).read_bytes())
        return target

    monkeypatch.setattr(cifar_module, "fetch", fetch)
    with pytest.raises(DataError, match="not on this machine"):
        load_cifar(made, request(tmp_path))
    assert_small(load_cifar(made, request(tmp_path, download=True)))
    assert asked == ["https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz"]


def encode(images: np.ndarray) -> bytes:
    """The pack's codec the slow way: one pixel of one image at a time. images: uint8 (n,H,W[,3])."""
    planes = images.reshape(*images.shape[:3], -1).astype(int)
    if planes.shape[3] == 3:
        planes[..., 0] -= planes[..., 1]
        planes[..., 2] -= planes[..., 1]
    n, height, width, channels = planes.shape
    out = np.empty((channels, n, height, width), np.uint8)
    for c, i, y, x in np.ndindex(channels, n, height, width):
        plane = planes[i, :, :, c]
        left, up = plane[y, x - 1], plane[y - 1, x]
        if y == 0 or x == 0:
            guess = left if x else up if y else 0
        else:
            corner = plane[y - 1, x - 1]
            guess = sorted([left, up, left + up - corner])[1]  # the median is LOCO-I's three-way rule
        residual = (plane[y, x] - guess + 128) % 256 - 128
        out[c, i, y, x] = 2 * residual if residual >= 0 else -2 * residual - 1
    return lzma.compress(out.tobytes())


@pytest.mark.parametrize("shape", [(3, 5, 6, 3), (4, 7, 5), (2, 1, 1, 3)])
def test_the_codec_is_undone(shape: tuple[int, ...]) -> None:
    images = np.random.default_rng(1).integers(0, 256, shape, dtype=np.uint8)
    images[0] = images[0] // 128 * 255
    assert np.array_equal(decode(encode(images), shape), images)
    with pytest.raises(DataError, match="got more"):
        decode(encode(images), (shape[0] - 1, *shape[1:]))
    with pytest.raises(DataError, match="xz stream"):
        decode(b"no xz", shape)


def packed(made: Cifar, path: Path, **changes: np.ndarray) -> None:
    arrays = {
        "x_xz": np.frombuffer(encode(PIXELS.transpose(0, 2, 3, 1)), np.uint8),
        "shape": np.array([12, 32, 32, 3]),
    }
    names = []
    for pin, rows in ((made.python.train[0], slice(0, 8)), (made.python.test, slice(8, 12))):
        content, flat = pickled(made, rows), PIXELS[rows].tobytes()
        start = content.index(flat)
        key = f"{made.python.folder}|{pin.name}"
        for part, text in (("head", content[:start]), ("tail", content[start + len(flat) :])):
            arrays[f"{part}:{key}"] = np.frombuffer(lzma.compress(text), np.uint8)
        arrays[f"count:{key}"] = np.array(rows.stop - rows.start)
        names.append(f"{made.python.folder}/{pin.name}")
    np.savez(path, **{**arrays, "files": np.array(names), **changes})


def in_protocol_3(cifar: Cifar, rows: slice) -> bytes:
    """Raw bytes in one piece, as Python 2's pickles of the published files have them."""
    batch = {b"data": PIXELS[rows].reshape(-1, 3072), cifar.labels.encode(): FINE[rows].tolist()}
    return pickle.dumps(batch, protocol=3)


def test_a_pack_is_restored_once(tmp_path: Path, bare_machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("test_cifar.pickled", in_protocol_3)
    made = small(CIFAR10, tmp_path / "made", "none")
    packed(made, tmp_path / "cifar10.npz")
    assert is_pack(tmp_path / "cifar10.npz")
    assert where(made, (tmp_path,)) == str(tmp_path / "cifar10.npz")
    data = load_cifar(made, request(tmp_path))
    assert_small(data)
    assert data.source["folder"] == str(bare_machine / "cifar-10-batches-py")
    (tmp_path / "cifar10.npz").unlink()
    assert_small(load_cifar(made, request(tmp_path, bare_machine)))


def test_a_pack_writes_only_pinned_names_and_content(
    tmp_path: Path, bare_machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("test_cifar.pickled", in_protocol_3)
    made = small(CIFAR10, tmp_path / "made", "none")
    packed(made, tmp_path / "cifar10.npz", files=np.array(["../../evil"]))
    with pytest.raises(DataError, match=r"holds '\.\./\.\./evil'"):
        load_cifar(made, request(tmp_path))
    packed(made, tmp_path / "cifar10.npz")
    changed = replace(made, python=replace(made.python, test=Pin("test_batch", "0" * 64)))
    with pytest.raises(DataError, match="test_batch: expected sha256 0000"):
        load_cifar(changed, request(tmp_path))
    assert not (bare_machine / "cifar-10-batches-py" / "test_batch").exists()


def test_a_plain_npz_of_that_name_is_no_pack(tmp_path: Path) -> None:
    np.savez(tmp_path / "cifar10.npz", x_train=np.zeros(3))
    assert where(CIFAR10, (tmp_path,)) is None


def test_the_tables_are_whole() -> None:
    assert len(CIFAR10.classes) == 10
    assert len(set(CIFAR100.classes)) == 100
    assert list(CIFAR100.classes) == sorted(CIFAR100.classes)
    for cifar in (CIFAR10, CIFAR100):
        pins = [*cifar.python.pins, *cifar.python.others, *cifar.binary.pins, cifar.archive]
        assert len({pin.digest for pin in pins}) == len(pins)
        assert all(len(pin.digest) == 64 for pin in pins)


SHARED = Path(os.environ.get("NFM_DATA", Path(__file__).parents[3] / "shared" / "data"))


@pytest.mark.slow
@pytest.mark.parametrize("cifar", [CIFAR10, CIFAR100], ids=["10", "100"])
def test_the_real_files(cifar: Cifar) -> None:
    """The published bytes, their sizes, classes and statistics."""
    if where(cifar, (SHARED,)) is None:
        pytest.skip(f"no {cifar.name} in {SHARED}; point NFM_DATA at it")
    data = load(cifar.name, root=SHARED, validation=0)
    assert (len(data.train), len(data.test)) == (50_000, 10_000)
    per_class = torch.bincount(data.train.labels)
    assert per_class.min() == per_class.max() == 50_000 // len(cifar.classes)
    mean, std = channel_statistics(data.train.images)  # type: ignore[attr-defined]
    assert np.allclose(mean, data.mean, atol=1e-4)
    assert np.allclose(std, data.std, atol=1e-4)
    if cifar is CIFAR10:
        own = torch.stack([image.float().div(255).flatten(1).std(1) for image in data.train.images]).mean(0)  # type: ignore[attr-defined]
        assert np.allclose(own, AUTHORS_STD, atol=1e-4)
