"""Street View House Numbers, cropped: two MATLAB files."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np

from nfm.data.download import fetch
from nfm.data.examples import DataSet, Examples, empty_like, in_memory
from nfm.data.files import Pin, find_folder, missing, provenance, read_verified
from nfm.data.places import cache_folder
from nfm.data.source import DATA, Request, Source
from nfm.errors import DataError, need

ADDRESS = "https://ufldl.stanford.edu/housenumbers/"
# tensorflow_datasets/url_checksums/svhn_cropped.txt
TRAIN = Pin("train_32x32.mat", "435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8")
TEST = Pin("test_32x32.mat", "cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b")
FOLDERS = ("svhn", "SVHN", ".")
MEAN, STD = (
    (0.4377, 0.4438, 0.4728),
    (0.1980, 0.2010, 0.1970),
)  # as commonly quoted


def load_svhn(request: Request) -> DataSet:
    """Return SVHN; its digit 0 is stored as class 10."""
    folder = _obtain(request)
    train = parse_mat(read_verified(folder / TRAIN.name, TRAIN), folder / TRAIN.name)
    return DataSet(
        name="svhn",
        train=train,
        validation=empty_like(train),
        test=parse_mat(read_verified(folder / TEST.name, TEST), folder / TEST.name),
        classes=tuple("0123456789"),
        mean=MEAN,
        std=STD,
        source=provenance(folder, (TRAIN, TEST)),
    )


def _obtain(request: Request) -> Path:
    if folder := find_folder(request.places, FOLDERS, [TRAIN.name, TEST.name]):
        return folder
    if not request.download:
        raise missing("svhn", f"svhn/{TRAIN.name} and svhn/{TEST.name}", request.places, ADDRESS)
    folder = cache_folder() / "svhn"
    for pin in (TRAIN, TEST):
        fetch(ADDRESS + pin.name, folder / pin.name, pin)
    return folder


def parse_mat(content: bytes, path: Path) -> Examples:
    """Return the images X, uint8 (32,32,3,n), and labels y, 1 to 10, of a MATLAB 5 file."""
    try:
        from scipy.io import loadmat
    except (ImportError, RuntimeError) as error:
        raise need("scipy", "data", "the data set 'svhn'", error) from error
    try:
        found = loadmat(io.BytesIO(content), variable_names=["X", "y"])
    except Exception as error:  # scipy's reader raises many kinds on damaged files
        raise DataError(f"{path}: expected a MATLAB 5 file, got {type(error).__name__}: {error}") from error
    images, labels = found.get("X"), found.get("y")
    if images is None or images.dtype != np.uint8 or images.ndim != 4 or images.shape[:3] != (32, 32, 3):
        raise DataError(f"{path}: expected X, uint8 (32,32,3,n), got {getattr(images, 'shape', None)}")
    if labels is None or labels.size != images.shape[3]:
        raise DataError(f"{path}: expected {images.shape[3]} labels y, got {getattr(labels, 'size', None)}")
    return in_memory(images.transpose(3, 2, 0, 1), labels.reshape(-1).astype(np.int64) % 10)


def where(places: tuple[Path, ...]) -> str | None:
    folder = find_folder(places, FOLDERS, [TRAIN.name, TEST.name])
    return str(folder) if folder else None


DATA.add("svhn", Source(build=load_svhn, where=where, size="73257 + 26032 of 3x32x32", classes=10))
