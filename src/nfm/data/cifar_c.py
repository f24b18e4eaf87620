"""CIFAR-10-C and CIFAR-100-C as published: a file each corruption, five severities of the test images."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

import numpy as np

from nfm.data.archive import extract
from nfm.data.cifar import load_cifar
from nfm.data.cifar_c_files import (
    CIFAR10_C,
    CIFAR100_C,
    CORRUPTIONS,
    PER_SEVERITY,
    SEVERITIES,
    CorruptedFiles,
)
from nfm.data.cifar_files import CIFAR10, CIFAR100
from nfm.data.download import fetch
from nfm.data.examples import DataSet, Examples, in_memory
from nfm.data.files import Pin, find_file, find_folder, missing, verify
from nfm.data.npy import Array, map_npy
from nfm.data.places import cache_folder, search_path
from nfm.data.source import DATA, Request, Source
from nfm.errors import DataError, UsageError, did_you_mean

ROWS = PER_SEVERITY * len(SEVERITIES)
BASES = {"cifar10-c": (CIFAR10, CIFAR10_C), "cifar100-c": (CIFAR100, CIFAR100_C)}


@dataclass(frozen=True)
class Corrupted:
    """A folder of published corruptions. verified: hold each file against its MD5."""

    name: str
    folder: Path
    verified: bool = True

    @property
    def corruptions(self) -> tuple[str, ...]:
        """The corruptions whose files are here, the fifteen standard ones first."""
        return tuple(name for name in CORRUPTIONS if (self.folder / f"{name}.npy").is_file())

    def examples(self, corruption: str, severity: int) -> Examples:
        """Return the 10,000 test images at one severity, 1 to 5; ids are those of the clean images."""
        check_corruption(corruption)
        if severity not in SEVERITIES:
            raise UsageError(f"severity: expected 1 to 5, got {severity!r}")
        rows = slice((severity - 1) * PER_SEVERITY, severity * PER_SEVERITY)
        images = self._map(corruption, (ROWS, 32, 32, 3))[rows]
        return in_memory(images.transpose(0, 3, 1, 2), self._labels()[rows].astype(np.int64))

    def _labels(self) -> Array:
        """Return the labels (50000,): those of the 10,000 test images, five times over."""
        labels = self._map("labels", (ROWS,))
        repeats = labels.reshape(len(SEVERITIES), PER_SEVERITY)
        if not (repeats == repeats[0]).all():
            raise DataError(f"{self.folder / 'labels.npy'}: expected the same 10,000 labels at each severity")
        return labels

    def _map(self, name: str, shape: tuple[int, ...]) -> Array:
        path = self.folder / f"{name}.npy"
        if not path.is_file():
            raise DataError(
                f"{path}: no such file; {self.name} has here: {', '.join(self.corruptions) or 'none'}"
            )
        if self.verified:
            state = path.stat()
            _verify_once(path, BASES[self.name][1].pin(name), state.st_size, state.st_mtime_ns)
        found = map_npy(path)
        if found.shape != shape or found.dtype != np.uint8:
            raise DataError(f"{path}: expected uint8 {shape}, got {found.dtype} {found.shape}")
        return found


@cache
def _verify_once(path: Path, pin: Pin, size: int, changed: int) -> None:
    """Verify a file that is read once a severity only the first time, while its size and date stay."""
    verify(path, pin)


def check_corruption(corruption: str) -> None:
    if corruption not in CORRUPTIONS:
        raise UsageError(
            f"unknown corruption {corruption!r}; known: {', '.join(CORRUPTIONS)}"
            f"{did_you_mean(corruption, CORRUPTIONS)}"
        )


def corrupted(name: str, *, root: Path | str | None = None, download: bool = False) -> Corrupted:
    """Return the published corruptions `name`, cifar10-c or cifar100-c, as found on the search path."""
    if name not in BASES:
        raise UsageError(
            f"unknown corrupted set {name!r}; known: {', '.join(BASES)}{did_you_mean(name, BASES)}"
        )
    return Corrupted(name, _obtain(BASES[name][1], search_path(root), download))


def _obtain(files: CorruptedFiles, places: tuple[Path, ...], download: bool) -> Path:
    if folder := find_folder(places, [files.folder], ["labels.npy"]):
        return folder
    archive = find_file(places, [files.archive.name])
    cache = cache_folder()
    if archive:
        extract(verify(archive, files.archive), cache)
    elif download:
        extract(fetch(files.address, cache / files.archive.name, files.archive), cache)
    else:
        put = f"{files.folder}/ with labels.npy and one .npy a corruption, or {files.archive.name}"
        raise missing(files.name, put, places, files.address)
    return cache / files.folder


def _build(name: str, request: Request) -> DataSet:
    """Return a CIFAR whose test part is one corruption at one severity: name:CORRUPTION:SEVERITY."""
    cifar, files = BASES[name]
    corruption, _, severity = request.argument.partition(":")
    check_corruption(corruption)
    if not severity.isdecimal():
        raise UsageError(f"expected {name}:CORRUPTION:SEVERITY, got {name}:{request.argument}")
    found = Corrupted(name, _obtain(files, request.places, request.download))
    clean = load_cifar(cifar, request)
    source = {
        **clean.source,
        "corrupted": str(found.folder),
        "corruption": corruption,
        "severity": int(severity),
    }
    return replace(clean, name=name, test=found.examples(corruption, int(severity)), source=source)


def where(files: CorruptedFiles, places: tuple[Path, ...]) -> str | None:
    found = find_folder(places, [files.folder], ["labels.npy"]) or find_file(places, [files.archive.name])
    return str(found) if found else None


for _name, (_cifar, _files) in BASES.items():
    DATA.add(
        _name,
        Source(
            build=partial(_build, _name),
            where=partial(where, _files),
            size="50000 + 10000 of 3x32x32",
            classes=len(_cifar.classes),
            argument="CORRUPTION:SEVERITY",
        ),
    )
