"""ImageNet and what is made of it: the 1,000 classes, nine groups of them, and 200 of them at 64x64."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from nfm.data.archive import extract
from nfm.data.download import fetch
from nfm.data.encoded import EncodedImages
from nfm.data.examples import DataSet, ExampleSet, empty_like
from nfm.data.files import Pin, find_file, missing, verify
from nfm.data.folder import Listing, class_folders, encoded, listing, load_folder
from nfm.data.places import cache_folder
from nfm.data.source import DATA, Request, Source
from nfm.errors import DataError

IMAGENET = ("imagenet", "ImageNet", "ILSVRC2012")
TINY = "tiny-imagenet-200"
TINY_ADDRESS = "https://cs231n.stanford.edu/tiny-imagenet-200.zip"
# The zip's MD5 that many loaders carry is 90528d7ca1a48142e341f4ef8d21d0de; this SHA-256 is of the same file.
TINY_ARCHIVE = Pin(
    "tiny-imagenet-200.zip", "6198c8ae015e2b3e007c7841da39ec069199b9aa3bfa943a462022fe5e43c821"
)
TINY_MEAN, TINY_STD = (0.4802, 0.4481, 0.3975), (0.2770, 0.2691, 0.2821)  # as commonly quoted

# Group: first and last class number, counted from 0 in the sorted order of WordNet ids (Tsipras et al. 2019,
# "Robustness may be at odds with accuracy", app. A; MadryLab/robustness, tools/constants.py).
RESTRICTED = {
    "dog": (151, 268), "cat": (281, 285), "frog": (30, 32), "turtle": (33, 37), "bird": (80, 100),
    "primate": (365, 382), "fish": (389, 397), "crab": (118, 121), "insect": (300, 319),
}  # fmt: skip


def find_imagenet(places: tuple[Path, ...]) -> Path | None:
    """Return the folder with ImageNet's train and val."""
    folders = (place / name for place in places for name in (*IMAGENET, "."))
    return next((f for f in folders if (f / "train" / "n01440764").is_dir() and (f / "val").is_dir()), None)


def load_imagenet(request: Request) -> DataSet:
    """Return ImageNet: its val folder is the test part; both have one folder a class."""
    folder = find_imagenet(request.places)
    if folder is None:
        put = "imagenet/train/nXXXXXXXX/*.JPEG and imagenet/val/nXXXXXXXX/*.JPEG"
        address = "https://image-net.org, an account is needed, so it is never downloaded"
        raise missing("imagenet", put, request.places, address, downloadable=False)
    data = load_folder("imagenet", folder)
    if data.num_classes != 1000:
        raise DataError(f"{folder / 'train'}: expected 1000 class folders, got {data.num_classes}")
    return data


def load_restricted(request: Request) -> DataSet:
    """Return the images of ImageNet that belong to nine groups of animals, labelled by group."""
    whole = load_imagenet(request)
    return replace(
        whole,
        name="restricted-imagenet",
        train=in_groups(whole.train),
        validation=empty_like(whole.train),
        test=in_groups(whole.test),
        classes=tuple(RESTRICTED),
    )


def in_groups(examples: ExampleSet) -> ExampleSet:
    """Return the examples of the restricted classes, labelled by group."""
    group = np.full(1000, -1)
    for number, (first, last) in enumerate(RESTRICTED.values()):
        group[first : last + 1] = number
    labels = torch.from_numpy(group)[examples.labels]
    kept = (labels >= 0).nonzero().flatten()
    return examples.subset(kept).relabel(labels[kept])


def load_tiny(request: Request) -> DataSet:
    """Return Tiny-ImageNet; its val folder is the test part, its own test has no labels."""
    folder = _obtain_tiny(request)
    classes = class_folders(folder / "train")
    train = encoded(listing(folder / "train", classes), size=64, resize=None)
    return DataSet(
        name="tiny-imagenet",
        train=train,
        validation=empty_like(train),
        test=_tiny_test(folder / "val", classes),
        classes=classes,
        mean=TINY_MEAN,
        std=TINY_STD,
        source={"folder": str(folder)},
    )


def find_tiny(places: tuple[Path, ...]) -> Path | None:
    folders = (place / name for place in places for name in (TINY, "tiny-imagenet"))
    return next((folder for folder in folders if (folder / "train").is_dir()), None)


def _obtain_tiny(request: Request) -> Path:
    if folder := find_tiny(request.places):
        return folder
    archive, cache = find_file(request.places, [TINY_ARCHIVE.name]), cache_folder()
    if archive:
        extract(verify(archive, TINY_ARCHIVE), cache)
    elif request.download:
        extract(fetch(TINY_ADDRESS, cache / TINY_ARCHIVE.name, TINY_ARCHIVE), cache)
    else:
        raise missing("tiny-imagenet", f"{TINY}/ or {TINY_ARCHIVE.name}", request.places, TINY_ADDRESS)
    return cache / TINY


def _tiny_test(folder: Path, classes: Sequence[str]) -> EncodedImages:
    """Return val, whose labels are in a table: file name, class, box; or in folders, as some rearrange it."""
    table = folder / "val_annotations.txt"
    if not table.is_file():
        return encoded(listing(folder, tuple(classes)), size=64, resize=None)
    number = {name: place for place, name in enumerate(classes)}
    rows = [line.split("\t") for line in table.read_text("ascii").splitlines()]
    for line, row in enumerate(rows, start=1):
        if len(row) < 2 or row[1] not in number or "/" in row[0]:
            raise DataError(
                f"{table}, line {line}: expected a file name and a class of the training part, got {row}"
            )
    paths = tuple(str(folder / "images" / row[0]) for row in rows)
    return encoded(Listing(paths, tuple(number[row[1]] for row in rows), 0), size=64, resize=None)


def _shown(folder: Path | None) -> str | None:
    return str(folder) if folder else None


DATA.add(
    "tiny-imagenet",
    Source(
        build=load_tiny,
        where=lambda places: _shown(find_tiny(places) or find_file(places, [TINY_ARCHIVE.name])),
        size="100000 + 10000 of 3x64x64",
        classes=200,
    ),
)
DATA.add(
    "imagenet",
    Source(
        build=load_imagenet,
        where=lambda places: _shown(find_imagenet(places)),
        size="1281167 + 50000 of 3x224x224",
        classes=1000,
    ),
)
DATA.add(
    "restricted-imagenet",
    Source(
        build=load_restricted,
        where=lambda places: _shown(find_imagenet(places)),
        size="about 260000 + 10150 of 3x224x224",
        classes=len(RESTRICTED),
    ),
)
