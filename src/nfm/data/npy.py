"""Read .npy and .npz without trust: no pickles, and no header that the file's size belies."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from nfm.errors import DataError

MAX_BYTES = 32 << 30  # of one array; beyond it, use a folder of images

Array = NDArray[Any]


def map_npy(path: Path) -> Array:
    """Return a .npy file as a read-only memory map."""
    with path.open("rb") as file:
        shape, fortran, kind = _header(file, path.stat().st_size, str(path))
        start = file.tell()
    return np.memmap(path, kind, "r", start, shape, "F" if fortran else "C")


def read_npz(path: Path) -> dict[str, Array]:
    """Return the arrays of a .npz file by name."""
    with _members(path) as archive:
        return {
            info.filename.removesuffix(".npy"): _read(archive, info, f"{path}, array {info.filename!r}")
            for info in archive.infolist()
        }


def names_in_npz(path: Path) -> set[str]:
    """Return the names of the arrays of a .npz file, reading none."""
    with _members(path) as archive:
        return {name.removesuffix(".npy") for name in archive.namelist()}


@contextmanager
def _members(path: Path) -> Iterator[zipfile.ZipFile]:
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except (zipfile.BadZipFile, OSError, EOFError) as error:
        raise DataError(f"{path}: expected a .npz file, got {type(error).__name__}: {error}") from error


def _read(archive: zipfile.ZipFile, info: zipfile.ZipInfo, where: str) -> Array:
    with archive.open(info) as file:
        shape, fortran, kind = _header(file, info.file_size, where)
        content = bytearray(file.read())
    try:
        return np.frombuffer(content, kind).reshape(shape, order="F" if fortran else "C")
    except ValueError as error:
        raise DataError(f"{where}: expected {kind} {shape}, got {len(content)} bytes") from error


def _header(file: IO[bytes], size: int, where: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Return (shape, fortran order, dtype), refusing objects and a size that is not the header's."""
    try:
        version = npy_format.read_magic(file)
        read = npy_format.read_array_header_1_0 if version == (1, 0) else npy_format.read_array_header_2_0
        shape, fortran, kind = read(file)
    except (ValueError, EOFError) as error:
        raise DataError(f"{where}: expected a .npy array, got {error}") from error
    if kind.hasobject:
        raise DataError(
            f"{where}: expected numbers or text, got dtype object, which is a pickle; store plain arrays"
        )
    promised = file.tell() + math.prod(shape) * kind.itemsize
    if promised != size or size > MAX_BYTES:
        raise DataError(
            f"{where}: the header promises {shape} of {kind} ({promised} bytes), the file has {size} "
            f"(at most {MAX_BYTES})"
        )
    return shape, fortran, kind
