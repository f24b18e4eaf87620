"""Folders of images, ImageNet and its relatives."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from nfm.data import EncodedImages, RandomResizedCrop, load
from nfm.data import imagenet as imagenet_module
from nfm.data.files import Pin, digest
from nfm.data.imagenet import RESTRICTED, TINY, in_groups
from nfm.errors import DataError


def put(path: Path, size: tuple[int, int] = (40, 30)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    colour = tuple(path.name.encode()[:3].ljust(3, b"x"))
    Image.new("RGB", size, colour).save(path)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for part, count in (("train", 10), ("val", 4)):
        for kind in ("bee", "ant", "cat"):
            for number in range(count):
                put(tmp_path / "set" / part / kind / f"{number}.png")
    return tmp_path / "set"


def test_a_folder_is_a_data_set(root: Path) -> None:
    data = load(f"imagefolder:{root}")
    assert data.classes == ("ant", "bee", "cat")
    assert [len(data.train), len(data.validation), len(data.test)] == [27, 3, 12]
    assert data.shape == (3, 224, 224)
    assert data.train.fetch(torch.tensor([0, 5]), augment=RandomResizedCrop(32), key=0).shape == (
        2,
        3,
        32,
        32,
    )
    assert torch.bincount(data.test.labels).tolist() == [4, 4, 4]
    for part in (data.train, data.validation):
        assert isinstance(part, EncodedImages)
        paths = [part.blobs.name(place) for place in part.places.tolist()]
        assert [data.classes.index(Path(path).parent.name) for path in paths] == part.labels.tolist()
        assert all("/train/" in path for path in paths)


def test_with_a_test_folder_val_is_the_validation_part(root: Path) -> None:
    put(root / "test" / "ant" / "x.png")
    with pytest.warns(UserWarning, match="2 of 3 classes have no example"):
        data = load(f"imagefolder:{root}")
    assert [len(data.train), len(data.validation), len(data.test)] == [30, 12, 1]


def test_hidden_and_other_files_are_left_out_and_counted(root: Path) -> None:
    for name in (".DS_Store", "._1.png", "notes.txt"):
        (root / "train" / "ant" / name).write_bytes(b"x")
    (root / "train" / "ant" / "loop.png").symlink_to(root / "train" / "ant" / "loop.png")
    (root / "train" / "ant" / "around").symlink_to(root / "train")
    (root / "train" / ".hidden").mkdir()
    put(root / "train" / "ant" / "deeper" / "y.png")
    data = load(f"imagefolder:{root}", validation=0)
    assert len(data.train) == 31
    assert data.source["skipped"] == 4


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda root: put(root / "val" / "dog" / "x.png"), "class 'dog' is not among the 3 training classes"),
        (lambda root: (root / "val").rename(root / "other"), "expected the folder val or test"),
        (lambda root: (root / "train").rename(root / "other"), "one folder a class, got"),
    ],
)
def test_other_folders_are_refused(root: Path, spoil, message: str) -> None:  # type: ignore[no-untyped-def]
    spoil(root)
    with pytest.raises(DataError, match=message):
        load(f"imagefolder:{root}")


def test_a_folder_without_classes_is_refused(tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()
    with pytest.raises(DataError, match="one folder a class, got none"):
        load(f"imagefolder:{tmp_path}")


def test_an_unreadable_folder_is_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    walk = os.walk

    def refuse(top: Path, onerror, **options):  # type: ignore[no-untyped-def]
        onerror(PermissionError(13, "Permission denied", str(top)))
        return walk(top, **options)

    monkeypatch.setattr(os, "walk", refuse)
    with pytest.raises(DataError, match=r"train/ant: cannot be read \(Permission denied\)"):
        load(f"imagefolder:{root}")


def tiny(root: Path) -> Path:
    folder = root / "tiny-imagenet-200"
    for kind in ("n2", "n1"):
        for number in range(5):
            put(folder / "train" / kind / "images" / f"{kind}_{number}.JPEG", (64, 64))
    rows = []
    for number in range(6):
        put(folder / "val" / "images" / f"val_{number}.JPEG", (64, 64))
        rows.append(f"val_{number}.JPEG\tn{1 + number % 2}\t0\t0\t62\t62")
    (folder / "val" / "val_annotations.txt").write_text("\n".join(rows) + "\n")
    return folder


def test_tiny_imagenet_has_its_labels_in_a_table(tmp_path: Path) -> None:
    folder = tiny(tmp_path)
    data = load("tiny-imagenet", root=tmp_path, validation=0)
    assert data.classes == ("n1", "n2")
    assert len(data.train) == 10
    assert data.test.labels.tolist() == [0, 1, 0, 1, 0, 1]
    assert data.test.fetch(torch.arange(6)).shape == (6, 3, 64, 64)
    (folder / "val" / "val_annotations.txt").write_text("val_0.JPEG\tn1\nval_1.JPEG\tn3\n")
    with pytest.raises(DataError, match=r"val_annotations\.txt, line 2"):
        load("tiny-imagenet", root=tmp_path)


@pytest.fixture(scope="module")
def imagenet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A thousand classes with one training image and one test image each, all of them the same file."""
    root = tmp_path_factory.mktemp("big")
    put(root / "one.png", (300, 260))
    for part in ("train", "val"):
        for number in range(1000):
            folder = root / "imagenet" / part / f"n{1440764 + number:08d}"
            folder.mkdir(parents=True)
            (folder / "1.jpeg").hardlink_to(root / "one.png")
    return root


def test_imagenet_is_found_and_has_a_thousand_classes(imagenet: Path) -> None:
    data = load("imagenet", root=imagenet, validation=0)
    assert data.num_classes == len(data.train) == len(data.test) == 1000
    assert data.test.fetch(torch.tensor([999])).shape == (1, 3, 224, 224)
    np.testing.assert_allclose(data.mean, (0.485, 0.456, 0.406))


def test_restricted_imagenet_keeps_nine_groups(imagenet: Path) -> None:
    data = load("restricted-imagenet", root=imagenet, validation=0)
    assert data.classes == ("dog", "cat", "frog", "turtle", "bird", "primate", "fish", "crab", "insect")
    assert torch.bincount(data.train.labels).tolist() == [118, 5, 3, 5, 21, 18, 9, 4, 20]
    kept = dict(zip(data.train.ids.tolist(), data.train.labels.tolist(), strict=True))
    assert kept[151] == kept[268] == 0  # Chihuahua and Mexican hairless: both ends belong to the dogs
    assert 150 not in kept  # sea lion
    assert 269 not in kept  # timber wolf
    assert in_groups(data.train.relabel(data.train.ids)).labels.tolist() == data.train.labels.tolist()


def test_the_groups_do_not_overlap() -> None:
    numbers = [number for first, last in RESTRICTED.values() for number in range(first, last + 1)]
    assert len(set(numbers)) == len(numbers) == 203


def test_an_imagenet_of_fewer_classes_is_refused(imagenet: Path, tmp_path: Path) -> None:
    for part in ("train", "val"):
        (tmp_path / "imagenet" / part).mkdir(parents=True)
        source = imagenet / "imagenet" / part / "n01440764"
        (tmp_path / "imagenet" / part / "n01440764").symlink_to(source)
    with pytest.raises(DataError, match="expected 1000 class folders, got 1"):
        load("imagenet", root=tmp_path)


@pytest.mark.parametrize("download", [False, True])
def test_tiny_imagenets_archive_is_extracted_into_the_cache(
    tmp_path: Path, bare_machine: Path, monkeypatch: pytest.MonkeyPatch, download: bool
) -> None:
    folder = tiny(tmp_path / "made")
    archive = Path(shutil.make_archive(str(tmp_path / "far" / TINY), "zip", folder.parent, TINY))
    with pytest.raises(DataError, match="expected sha256 6198c8ae"):
        load("tiny-imagenet", root=archive.parent)
    monkeypatch.setattr(imagenet_module, "TINY_ARCHIVE", Pin(archive.name, digest(archive)))
    monkeypatch.setattr(imagenet_module, "fetch", lambda url, target, pin: archive)
    data = load("tiny-imagenet", root=tmp_path if download else archive.parent, download=download)
    assert data.source["folder"] == str(bare_machine / TINY)
    assert len(data.test) == 6
