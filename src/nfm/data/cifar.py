"""CIFAR-10 and CIFAR-100 in the layouts they are published in, or restored from a pack."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nfm.data.archive import extract
from nfm.data.cifar_files import ADDRESS, CIFAR10, CIFAR100, Cifar, Layout
from nfm.data.download import fetch
from nfm.data.examples import DataSet, Examples, empty_like, in_memory
from nfm.data.files import Pin, find_file, find_folder, missing, provenance, read_verified, verify
from nfm.data.pack import is_pack, restore
from nfm.data.pickled import read_pickle
from nfm.data.places import cache_folder
from nfm.data.source import DATA, Request, Source
from nfm.errors import DataError

Array = NDArray[Any]


def load_cifar(cifar: Cifar, request: Request) -> DataSet:
    """Return a CIFAR whose every file has its published checksum."""
    folder, layout = _obtain(cifar, request)
    train = _read_all(cifar, layout, folder, layout.train)
    return DataSet(
        name=cifar.name,
        train=train,
        validation=empty_like(train),
        test=_read_all(cifar, layout, folder, (layout.test,)),
        classes=cifar.classes,
        mean=cifar.mean,
        std=cifar.std,
        source=provenance(folder, layout.pins),
    )


def where(cifar: Cifar, places: tuple[Path, ...]) -> str | None:
    """Return where the files lie, packed or not."""
    if found := _find(cifar, places):
        return str(found[0])
    packed = _pack(cifar, places) or find_file(places, [cifar.archive.name])
    return str(packed) if packed else None


def _obtain(cifar: Cifar, request: Request) -> tuple[Path, Layout]:
    """Return a folder that holds all files of one layout: found, restored, extracted or downloaded."""
    if found := _find(cifar, request.places):
        return found
    cache = cache_folder()
    archive = find_file(request.places, [cifar.archive.name])
    if pack := _pack(cifar, request.places):
        pins = (*cifar.python.pins, *cifar.python.others)
        restore(pack, cache, {f"{cifar.python.folder}/{pin.name}": pin for pin in pins})
    elif archive:
        extract(verify(archive, cifar.archive), cache)
    elif request.download:
        extract(fetch(ADDRESS + cifar.archive.name, cache / cifar.archive.name, cifar.archive), cache)
    else:
        put = f"{cifar.python.folder}/, {cifar.binary.folder}/, {cifar.name}.npz or {cifar.archive.name}"
        raise missing(cifar.name, put, request.places, ADDRESS + cifar.archive.name)
    if found := _find(cifar, (cache,)):
        return found
    raise DataError(f"{cache}: expected the files of {cifar.name} after extraction, got others")


def _find(cifar: Cifar, places: tuple[Path, ...]) -> tuple[Path, Layout] | None:
    for layout in (cifar.python, cifar.binary):
        if folder := find_folder(places, [layout.folder], [pin.name for pin in layout.pins]):
            return folder, layout
    return None


def _pack(cifar: Cifar, places: tuple[Path, ...]) -> Path | None:
    path = find_file(places, [f"{cifar.name}.npz"])
    return path if path and is_pack(path) else None


def _read_all(cifar: Cifar, layout: Layout, folder: Path, pins: tuple[Pin, ...]) -> Examples:
    read = read_binary if layout is cifar.binary else read_pickled
    parts = [read(cifar, read_verified(folder / pin.name, pin), folder / pin.name) for pin in pins]
    return in_memory(np.concatenate([x for x, _ in parts]), np.concatenate([y for _, y in parts]))


def read_pickled(cifar: Cifar, content: bytes, path: Path) -> tuple[Array, Array]:
    """Return images uint8 (n,3,32,32) and labels of a pickled batch."""
    batch = read_pickle(content, path)
    pixels, labels = batch.get("data"), batch.get(cifar.labels)
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.shape[1:] != (3072,):
        raise DataError(f"{path}: expected 'data', uint8 (n,3072), got {getattr(pixels, 'shape', pixels)}")
    if not isinstance(labels, list) or len(labels) != len(pixels):
        raise DataError(f"{path}: expected {len(pixels)} {cifar.labels!r}, got {type(labels).__name__}")
    return pixels.reshape(-1, 3, 32, 32), np.array(labels, dtype=np.int64)


def read_binary(cifar: Cifar, content: bytes, path: Path) -> tuple[Array, Array]:
    """Return images and labels of a binary batch; CIFAR-100 has a coarse label before the fine one."""
    record = cifar.label_bytes + 3072
    if not content or len(content) % record:
        raise DataError(f"{path}: expected a multiple of {record} bytes, got {len(content)}")
    rows = np.frombuffer(content, np.uint8).reshape(-1, record)
    labels = rows[:, cifar.label_bytes - 1].astype(np.int64)
    return rows[:, cifar.label_bytes :].reshape(-1, 3, 32, 32), labels


for _cifar in (CIFAR10, CIFAR100):
    DATA.add(
        _cifar.name,
        Source(
            build=partial(load_cifar, _cifar),
            where=partial(where, _cifar),
            size="50000 + 10000 of 3x32x32",
            classes=len(_cifar.classes),
        ),
    )
