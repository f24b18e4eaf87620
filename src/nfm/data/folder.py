"""Folders of images: PATH/train/CLASS/..., PATH/val/CLASS/..., and perhaps PATH/test/CLASS/..."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import torch

from nfm.data.encoded import EncodedImages, FileBlobs
from nfm.data.examples import DataSet, empty_like
from nfm.data.source import DATA, Request, Source
from nfm.errors import DataError

ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".ppm")
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # ImageNet's, as torchvision has them
RESIZE, CROP = 256, 224  # the evaluation view of ImageNet (Krizhevsky et al. 2012; He et al. 2015)
HELD_OUT = ("val", "valid", "validation")


@dataclass(frozen=True)
class Listing:
    """The images under a folder: paths and class numbers, sorted; and how many other files were left out."""

    paths: tuple[str, ...]
    labels: tuple[int, ...]
    skipped: int


def class_folders(folder: Path) -> tuple[str, ...]:
    """Return the names of the class folders, sorted; hidden ones do not count."""
    try:
        names = sorted(entry.name for entry in os.scandir(folder) if entry.is_dir() and entry.name[0] != ".")
    except OSError as error:
        raise DataError(f"{folder}: expected a folder with one folder a class, got {error}") from error
    if not names:
        raise DataError(f"{folder}: expected one folder a class, got none")
    return tuple(names)


def listing(folder: Path, classes: tuple[str, ...]) -> Listing:
    """Return all images under folder/CLASS, however deep. Links to folders below a class are not followed."""
    if unknown := sorted(set(class_folders(folder)) - set(classes)):
        raise DataError(f"{folder}: class {unknown[0]!r} is not among the {len(classes)} training classes")
    paths: list[str] = []
    labels: list[int] = []
    skipped = 0
    for label, name in enumerate(classes):
        files = sorted(_files(folder / name)) if (folder / name).is_dir() else []
        images = [path for path in files if _is_image(path)]
        skipped += len(files) - len(images)
        paths += images
        labels += [label] * len(images)
    return Listing(tuple(paths), tuple(labels), skipped)


def _files(folder: Path) -> list[str]:
    def refuse(error: OSError) -> None:
        raise DataError(f"{error.filename}: cannot be read ({error.strerror})") from error

    walk = os.walk(folder, onerror=refuse)
    return [os.path.join(path, name) for path, _, names in walk for name in names]


def _is_image(path: str) -> bool:
    name = os.path.basename(path)
    return name[0] != "." and name.lower().endswith(ENDINGS) and os.path.isfile(path)


def encoded(listed: Listing, *, size: int = CROP, resize: int | None = RESIZE) -> EncodedImages:
    """Return the listed images as examples."""
    count = torch.arange(len(listed.paths))
    labels = torch.tensor(listed.labels, dtype=torch.int64)
    return EncodedImages(FileBlobs(listed.paths), count, labels, count, size, resize)


def load_folder(name: str, folder: Path) -> DataSet:
    """Return the data set in `folder`. Without a test folder, val is the test part, as with ImageNet."""
    classes = class_folders(folder / "train")
    held = next((folder / part for part in HELD_OUT if (folder / part).is_dir()), None)
    tested = folder / "test" if (folder / "test").is_dir() else held
    if tested is None:
        raise DataError(f"{folder}: expected the folder val or test beside train, got neither")
    listings = {"train": listing(folder / "train", classes), "test": listing(tested, classes)}
    if held is not None and held != tested:
        listings["validation"] = listing(held, classes)
    parts = {part: encoded(listed) for part, listed in listings.items()}
    return DataSet(
        name=name,
        train=parts["train"],
        validation=parts.get("validation") or empty_like(parts["train"]),
        test=parts["test"],
        classes=classes,
        mean=MEAN,
        std=STD,
        source={"folder": str(folder), "skipped": sum(listed.skipped for listed in listings.values())},
    )


def _build(request: Request) -> DataSet:
    return load_folder("imagefolder", Path(request.argument).expanduser())


DATA.add(
    "imagefolder",
    Source(
        build=_build,
        where=lambda places: "a folder of yours",
        size="any of 3x224x224",
        classes=None,
        argument="PATH",
    ),
)
