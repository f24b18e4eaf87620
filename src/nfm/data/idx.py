"""MNIST and Fashion-MNIST: four files in the idx format, compressed or not."""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nfm.data.download import fetch
from nfm.data.examples import DataSet, Examples, empty_like, in_memory
from nfm.data.files import check_digest, find_folder, missing, provenance
from nfm.data.idx_files import FASHION, FILES, MNIST, IdxSet
from nfm.data.places import cache_folder
from nfm.data.source import DATA, Request, Source
from nfm.errors import DataError

MAGIC = {1: 0x0801, 3: 0x0803}  # unsigned bytes, with one or three sizes to follow
LARGEST = 64 << 20

Array = NDArray[Any]


def load_idx(idx: IdxSet, request: Request) -> DataSet:
    """Return MNIST or Fashion-MNIST, each file verified by its uncompressed content."""
    folder = _obtain(idx, request)
    contents = dict(_read_all(idx, folder))
    train, test = (_examples(contents, folder, part) for part in ("train", "t10k"))
    return DataSet(
        name=idx.name,
        train=train,
        validation=empty_like(train),
        test=test,
        classes=idx.classes,
        mean=(idx.mean,),
        std=(idx.std,),
        source=provenance(folder, idx.contents),
    )


def _find(idx: IdxSet, places: tuple[Path, ...]) -> Path | None:
    for ending in ("", ".gz"):
        if folder := find_folder(places, idx.folders, [name + ending for name in FILES]):
            return folder
    return None


def _obtain(idx: IdxSet, request: Request) -> Path:
    if folder := _find(idx, request.places):
        return folder
    if not request.download:
        raise missing(idx.name, f"{idx.folders[0]}/ with {', '.join(FILES)}", request.places, idx.address)
    folder = cache_folder() / idx.folders[0]
    for pin in idx.packed:
        fetch(idx.address + pin.name, folder / pin.name, pin)
    return folder


def _read_all(idx: IdxSet, folder: Path) -> Iterator[tuple[str, bytes]]:
    for pin in idx.contents:
        plain = folder / pin.name
        content = plain.read_bytes() if plain.is_file() else unpacked(folder / f"{pin.name}.gz")
        check_digest(hashlib.sha256(content).hexdigest(), pin, folder / pin.name)
        yield pin.name, content


def unpacked(path: Path) -> bytes:
    """Return what a .gz file holds, if it is not more than any file of these sets."""
    try:
        with gzip.open(path) as file:
            content = file.read(LARGEST + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: expected a whole .gz file, got {error}") from error
    if len(content) > LARGEST:
        raise DataError(f"{path}: expected at most {LARGEST} bytes uncompressed, got more")
    return content


def _examples(contents: dict[str, bytes], folder: Path, part: str) -> Examples:
    images, labels = f"{part}-images-idx3-ubyte", f"{part}-labels-idx1-ubyte"
    return in_memory(
        parse_idx(contents[images], 3, folder / images)[:, None],
        parse_idx(contents[labels], 1, folder / labels),
    )


def parse_idx(content: bytes, dimensions: int, path: Path) -> Array:
    """Return the array of unsigned bytes in an idx file: magic number, sizes (big-endian), values."""
    head = np.frombuffer(content[: 4 * (1 + dimensions)], ">u4")
    if len(head) != 1 + dimensions or head[0] != MAGIC[dimensions]:
        raise DataError(f"{path}: expected an idx file of {dimensions} dimension(s), got another beginning")
    shape = tuple(int(size) for size in head[1:])
    values = np.frombuffer(content, np.uint8, offset=head.nbytes)
    if len(values) != np.prod(shape, dtype=object):
        raise DataError(f"{path}: the header promises {shape}, the file has {len(values)} values")
    return values.reshape(shape)


def where(idx: IdxSet, places: tuple[Path, ...]) -> str | None:
    """Return the folder of the files."""
    folder = _find(idx, places)
    return str(folder) if folder else None


for _idx in (MNIST, FASHION):
    DATA.add(
        _idx.name,
        Source(
            build=partial(load_idx, _idx),
            where=partial(where, _idx),
            size="60000 + 10000 of 1x28x28",
            classes=10,
        ),
    )
