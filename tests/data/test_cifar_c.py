"""The published corruptions: severities in order, labels tiled, files as they should be."""

import hashlib
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from nfm.data import Corrupted, DataSet, cifar_c, corrupted, load
from nfm.data.cifar_c import BASES
from nfm.data.cifar_c_files import AUTHORS, CIFAR10_C, CIFAR100_C, CORRUPTIONS, STANDARD
from nfm.data.cifar_files import CIFAR10
from nfm.data.examples import empty_like, in_memory
from nfm.data.files import Pin, digest
from nfm.errors import DataError, UsageError

TEST_LABELS = np.random.default_rng(0).integers(0, 10, 10_000, dtype=np.uint8)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A set of the published form: pixel 0 holds the label, pixel 1 the severity."""
    path = tmp_path_factory.mktemp("made") / "CIFAR-10-C"
    path.mkdir()
    images = np.lib.format.open_memmap(path / "fog.npy", "w+", np.uint8, (50_000, 32, 32, 3))
    images[:, 0, 0, 0] = np.tile(TEST_LABELS, 5)
    images[:, 0, 0, 1] = np.repeat(np.arange(1, 6), 10_000)
    images[:, 3, 4, 2] = np.arange(50_000) % 251
    images.flush()
    np.save(path / "labels.npy", np.tile(TEST_LABELS, 5))
    return path


def own(folder: Path) -> Corrupted:
    return Corrupted("cifar10-c", folder, verified=False)


@pytest.mark.parametrize("severity", [1, 3, 5])
def test_an_oracle_scores_everything(folder: Path, severity: int) -> None:
    """A classifier that reads the label off the image is always right: labels are tiled, not repeated."""
    examples = own(folder).examples("fog", severity)
    assert examples.images.shape == (10_000, 3, 32, 32)
    assert (examples.images[:, 0, 0, 0] == examples.labels).all()
    assert (examples.images[:, 1, 0, 0] == severity).all()
    rows = np.arange(10_000) + (severity - 1) * 10_000
    assert (examples.images[:, 2, 3, 4].numpy() == rows % 251).all()
    assert examples.ids.tolist() == list(range(10_000))
    repeated = np.repeat(TEST_LABELS, 5)[rows]
    assert (examples.images[:, 0, 0, 0].numpy() == repeated).mean() < 0.2


@pytest.mark.parametrize("severity", [0, 6, "3", 2.5])
def test_other_severities_are_refused(folder: Path, severity: object) -> None:
    with pytest.raises(UsageError, match="expected 1 to 5"):
        own(folder).examples("fog", severity)  # type: ignore[arg-type]


def test_other_corruptions_are_refused(folder: Path) -> None:
    with pytest.raises(UsageError, match="did you mean 'fog'"):
        own(folder).examples("fogg", 1)
    with pytest.raises(DataError, match=r"snow\.npy: no such file; cifar10-c has here: fog"):
        own(folder).examples("snow", 1)


def spoil_rows(path: Path) -> None:
    np.lib.format.open_memmap(path / "fog.npy", "w+", np.uint8, (49_999, 32, 32, 3))  # a sparse file


def spoil_header(path: Path) -> None:
    with (path / "fog.npy").open("wb") as file:
        head = {"descr": "|u1", "fortran_order": False, "shape": (50_000, 32, 32, 3)}
        np.lib.format.write_array_header_1_0(file, head)
        file.write(bytes(3072))


def spoil_labels(path: Path) -> None:
    np.save(path / "labels.npy", np.repeat(TEST_LABELS, 5))


def spoil_few_labels(path: Path) -> None:
    np.save(path / "labels.npy", TEST_LABELS)


def spoil_kind(path: Path) -> None:
    np.save(path / "labels.npy", np.tile(TEST_LABELS, 5).astype(np.int64))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (spoil_rows, r"expected uint8 \(50000, 32, 32, 3\), got uint8 \(49999"),
        (spoil_header, "the header promises"),
        (spoil_labels, "the same 10,000 labels"),
        (spoil_few_labels, r"expected uint8 \(50000,\)"),
        (spoil_kind, "got int64"),
    ],
)
def test_other_files_are_refused(
    folder: Path, tmp_path: Path, spoil: Callable[[Path], None], message: str
) -> None:
    copy = tmp_path / "CIFAR-10-C"
    copy.mkdir()
    for name in ("fog.npy", "labels.npy"):
        (copy / name).symlink_to(folder / name)
    (copy / ("fog.npy" if spoil in (spoil_rows, spoil_header) else "labels.npy")).unlink()
    spoil(copy)
    with pytest.raises(DataError, match=message):
        own(copy).examples("fog", 2)


def test_published_files_are_held_against_their_md5(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = corrupted("cifar10-c", root=folder.parent)
    assert found.folder == folder
    assert found.corruptions == ("fog",)
    with pytest.raises(DataError, match="expected md5 7b397314b5670f825465fbcd1f6e9ccd"):
        found.examples("fog", 1)
    digests = CIFAR10_C.md5.split()
    digests[0] = hashlib.md5((folder / "labels.npy").read_bytes()).hexdigest()
    digests[1 + CORRUPTIONS.index("fog")] = hashlib.md5((folder / "fog.npy").read_bytes()).hexdigest()
    small = replace(CIFAR10_C, md5=" ".join(digests))
    monkeypatch.setitem(BASES, "cifar10-c", (CIFAR10, small))
    assert len(found.examples("fog", 1)) == 10_000


def test_names_are_checked(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="did you mean 'cifar10-c'"):
        corrupted("cifar10c", root=tmp_path)
    for name in ("cifar10-c:fog", "cifar10-c:fog:x"):
        with pytest.raises(UsageError, match="CORRUPTION:SEVERITY"):
            load(name, root=tmp_path)


def test_the_tables_are_whole() -> None:
    assert len(STANDARD) == 15
    assert len(set(CORRUPTIONS)) == 19
    assert set(AUTHORS) < set(CORRUPTIONS)
    for files in (CIFAR10_C, CIFAR100_C):
        digests = files.md5.split()
        assert len(set(digests)) == 20
        assert all(len(digest) == 32 for digest in digests)
        assert files.pin("labels").digest == digests[0]
        assert files.pin("saturate").digest == digests[-1]
    # Two that other sources give for single files.
    assert CIFAR10_C.pin("jpeg_compression").digest == "2b9cc4c864e0193bb64db8d7728f8187"
    assert CIFAR10_C.pin("saturate").digest == "1cfae0964219c5102abbb883e538cc56"


def test_the_name_puts_the_corruption_in_place_of_the_test_part(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clean = in_memory(np.zeros((30, 3, 32, 32), np.uint8), np.arange(30) % 10)
    data = DataSet("cifar10", clean, empty_like(clean), clean, CIFAR10.classes, CIFAR10.mean, CIFAR10.std)
    monkeypatch.setattr(cifar_c, "load_cifar", lambda cifar, request: data)
    monkeypatch.setattr(cifar_c, "verify", lambda path, pin: path)
    cifar_c._verify_once.cache_clear()
    loaded = load("cifar10-c:fog:4", root=folder.parent, validation=0)
    assert len(loaded.train) == 30
    assert (loaded.test.images[:, 1, 0, 0] == 4).all()  # type: ignore[attr-defined]
    assert loaded.source["corruption"] == "fog"
    cifar_c._verify_once.cache_clear()


@pytest.mark.parametrize("download", [False, True])
def test_the_archive_is_extracted_into_the_cache(
    folder: Path, tmp_path: Path, bare_machine: Path, monkeypatch: pytest.MonkeyPatch, download: bool
) -> None:
    archive = tmp_path / "far" / "CIFAR-10-C.tar"
    archive.parent.mkdir()
    with tarfile.open(archive, "w") as tar:
        tar.add(folder / "labels.npy", "CIFAR-10-C/labels.npy")
    small = replace(CIFAR10_C, archive=Pin(archive.name, digest(archive)))
    monkeypatch.setitem(BASES, "cifar10-c", (CIFAR10, small))
    monkeypatch.setattr(cifar_c, "fetch", lambda url, target, pin: archive)
    found = corrupted("cifar10-c", root=tmp_path if download else archive.parent, download=download)
    assert found.folder == bare_machine / "CIFAR-10-C"
    assert np.array_equal(np.load(found.folder / "labels.npy"), np.tile(TEST_LABELS, 5))
    with pytest.raises(DataError, match="has here: none"):
        found.examples("fog", 1)
