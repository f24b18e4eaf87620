"""A user's own arrays, npz:PATH.

Either x_train, y_train, x_test, y_test (and x_validation, y_validation, classes), or encoded images: jpeg
(all files joined), offset, y, split (train, val, test), classes.
"""

from __future__ import annotations

import hashlib
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from nfm.data.encoded import EncodedImages, PackedBlobs, open_image
from nfm.data.examples import DataSet, Examples, channel_statistics, empty_like, in_memory
from nfm.data.files import digest
from nfm.data.folder import CROP, MEAN, RESIZE, STD
from nfm.data.npy import read_npz
from nfm.data.source import DATA, Request, Source
from nfm.errors import DataError

Arrays = dict[str, NDArray[Any]]
PACKED = ("jpeg", "offset", "y", "split", "classes")


def load_npz(request: Request) -> DataSet:
    """Return the data set in a .npz file."""
    path = Path(request.argument).expanduser()
    if not path.is_file():
        raise DataError(f"npz: expected a file, got {str(path)!r}, which is none")
    arrays = read_npz(path)
    return _from_encoded(path, arrays) if "jpeg" in arrays else _from_pixels(path, arrays)


def _from_pixels(path: Path, arrays: Arrays) -> DataSet:
    train, test = _part(path, arrays, "train"), _part(path, arrays, "test")
    validation = _part(path, arrays, "validation") if "x_validation" in arrays else empty_like(train)
    if train.shape != test.shape:
        raise DataError(f"{path}: expected x_test shaped like x_train {train.shape}, got {test.shape}")
    warn_of_overlap(train, test, path)
    mean, std = statistics(train)
    return DataSet(
        name="npz",
        train=train,
        validation=validation,
        test=test,
        classes=_classes(arrays, train),
        mean=mean,
        std=std,
        source={"file": str(path), "sha256": digest(path)},
    )


def _part(path: Path, arrays: Arrays, part: str) -> Examples:
    for name in (f"x_{part}", f"y_{part}"):
        if name not in arrays:
            raise DataError(f"{path}: expected the array {name!r}, got only {', '.join(sorted(arrays))}")
    images, labels = as_images(arrays[f"x_{part}"], f"{path}, x_{part}"), arrays[f"y_{part}"]
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim == 1 and labels.dtype.kind not in "iu":
        raise DataError(
            f"{path}, y_{part}: expected whole numbers or rows of probabilities, got {labels.dtype}"
        )
    if len(images) == 0:
        raise DataError(f"{path}, x_{part}: expected at least one example, got none")
    if len(labels) != len(images):
        raise DataError(f"{path}: expected {len(images)} labels in y_{part}, got {len(labels)}")
    return in_memory(images, labels)


def as_images(array: NDArray[Any], where: str) -> NDArray[Any]:
    """Return uint8 or float images as (n,C,H,W), or vectors (n,d); channels may come first or last."""
    if array.dtype != np.uint8 and array.dtype.kind != "f":
        raise DataError(f"{where}: expected uint8 pixels or floats, got {array.dtype}; store pixels as uint8")
    if array.ndim == 2 and array.dtype.kind == "f":
        return array
    if array.ndim == 3:
        return array[:, None]
    if array.ndim == 4 and array.shape[1] in (1, 3):
        return array
    if array.ndim == 4 and array.shape[3] in (1, 3):
        return array.transpose(0, 3, 1, 2)
    raise DataError(
        f"{where}: expected images with 1 or 3 channels or float vectors (n,d), got {array.shape}"
    )


def _classes(arrays: Arrays, train: Examples) -> tuple[str, ...]:
    if "classes" in arrays:
        return tuple(str(name) for name in arrays["classes"].tolist())
    count = train.labels.shape[1] if train.labels.ndim == 2 else int(train.labels.max()) + 1
    return tuple(str(number) for number in range(count))


def statistics(train: Examples) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and deviation of each channel, or of each number of a vector; 0 counts as deviation 1."""
    images = train.images if train.images.ndim == 4 else train.images[:, :, None, None]
    mean, std = channel_statistics(images)
    return mean, tuple(value or 1.0 for value in std)


def warn_of_overlap(train: Examples, test: Examples, path: Path) -> None:
    """Warn with the number of test examples that are training examples too, bit for bit."""
    seen = {_print(row) for row in train.images.numpy()}
    shared = sum(_print(row) in seen for row in test.images.numpy())
    if shared:
        warnings.warn(
            f"{path}: {shared} of {len(test)} test examples are in the training part too", stacklevel=2
        )


def _print(row: NDArray[Any]) -> bytes:
    return hashlib.blake2b(row.tobytes(), digest_size=16).digest()


def _from_encoded(path: Path, arrays: Arrays) -> DataSet:
    if absent := [name for name in PACKED if name not in arrays]:
        raise DataError(f"{path}: expected the arrays {', '.join(PACKED)}, got no {absent[0]!r}")
    whole = _encoded(path, arrays)
    split = arrays["split"]
    tested = "test" if (split == "test").any() else "val"
    parts = {
        name: whole.subset(torch.from_numpy(np.flatnonzero(split == name)))
        for name in ("train", "val", tested)
    }
    return DataSet(
        name="npz",
        train=parts["train"],
        validation=parts["val"] if tested == "test" else empty_like(whole),
        test=parts[tested],
        classes=tuple(str(name) for name in arrays["classes"].tolist()),
        mean=MEAN,
        std=STD,
        source={"file": str(path), "sha256": digest(path)},
    )


def _encoded(path: Path, arrays: Arrays) -> EncodedImages:
    offset = arrays["offset"].astype(np.int64)
    count = len(arrays["y"])
    if len(offset) != count + 1 or len(arrays["split"]) != count or (np.diff(offset) < 0).any():
        raise DataError(f"{path}: expected {count + 1} rising offsets and {count} splits for {count} labels")
    if count == 0 or offset[0] < 0 or offset[-1] > len(arrays["jpeg"]):
        raise DataError(f"{path}: expected offsets within the {len(arrays['jpeg'])} bytes of 'jpeg'")
    blobs = PackedBlobs(arrays["jpeg"], offset, str(path))
    size, resize = view_of(blobs.read(0), blobs.name(0))
    labels = torch.from_numpy(arrays["y"].astype(np.int64))
    return EncodedImages(blobs, torch.arange(count), labels, torch.arange(count), size, resize)


def view_of(content: bytes, name: str) -> tuple[int, int | None]:
    """Return (size, resize) by the first image: a square of at most 224 is taken as it is."""
    width, height = open_image(content, name).size
    return (width, None) if width == height <= CROP else (CROP, RESIZE)


DATA.add(
    "npz",
    Source(build=load_npz, where=lambda places: "a file of yours", size="any", classes=None, argument="PATH"),
)
