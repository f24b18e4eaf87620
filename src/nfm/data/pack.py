"""Restore published files from an .npz pack: the images as predicted residuals under xz, the rest verbatim.

A pack holds x_xz (the residuals of all images), shape (n,H,W[,3]), files (names), and for each file, under
its name with `|` for `/`: head, tail (xz) and count, the number of images between the two.
"""

from __future__ import annotations

import lzma
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nfm.data.files import Pin, check_digest, hasher
from nfm.data.npy import names_in_npz, read_npz
from nfm.errors import DataError
from nfm.results import write_atomically

CHUNK = 10_000  # images at a time
Array = NDArray[Any]


def is_pack(path: Path) -> bool:
    """Tell whether `path` is an .npz pack."""
    return path.is_file() and {"x_xz", "shape", "files"} <= names_in_npz(path)


def restore(path: Path, target: Path, pins: Mapping[str, Pin]) -> None:
    """Write the files of the pack into `target`. Only names that are pinned, only content that is."""
    sys.stderr.write(f"restoring {path.stem} from {path} to {target}, once: about half a minute\n")
    pack = read_npz(path)
    images = decode(pack["x_xz"].tobytes(), tuple(int(side) for side in pack["shape"]))
    planes = np.moveaxis(images, -1, 1) if images.ndim == 4 else images
    start = 0
    for name in pack["files"].tolist():
        if name not in pins:
            raise DataError(f"{path}: holds {name!r}; expected only {', '.join(pins)}")
        key, stop = name.replace("/", "|"), start + int(pack[f"count:{name.replace('/', '|')}"])
        head, tail = (_unxz(pack[f"{part}:{key}"].tobytes(), 1 << 28) for part in ("head", "tail"))
        content = head + planes[start:stop].tobytes() + tail
        state = hasher(pins[name].algorithm)
        state.update(content)
        check_digest(state.hexdigest(), pins[name], f"{path}, {name}")
        write_atomically(target / name, content)
        start = stop


def decode(stream: bytes, shape: tuple[int, ...]) -> Array:
    """Return uint8 images of `shape` from their residuals, stored plane by plane as (channel,n,H,W)."""
    n, height, width = shape[:3]
    channels = shape[3] if len(shape) == 4 else 1
    raw = _unxz(stream, n * height * width * channels)
    if len(raw) != n * height * width * channels:
        raise DataError(f"expected {n * height * width * channels} bytes of images, got {len(raw)}")
    residuals = np.frombuffer(raw, np.uint8).reshape(channels, n, height, width)
    images = np.empty((n, height, width, channels), np.uint8)
    for start in range(0, n, CHUNK):
        images[start : start + CHUNK] = _undo_prediction(residuals[:, start : start + CHUNK])
    return images.reshape(shape)


def _undo_prediction(residuals: Array) -> Array:
    """Return images (n,H,W,C) from residuals (C,n,H,W), pixel by pixel over all images at once.

    Each value was predicted from its left, upper and upper-left neighbours by LOCO-I's median edge rule
    (Weinberger et al. 2000, eq. 1); of colours, green is kept and red and blue are differences from it.
    """
    folded = residuals.transpose(2, 3, 0, 1).astype(np.int16)  # (H,W,C,n)
    signed = np.where(folded & 1, -(folded >> 1) - 1, folded >> 1)
    values = np.zeros_like(signed)
    height, width, channels, _ = signed.shape
    for y in range(height):
        for x in range(width):
            value = (_predicted(values, y, x) + signed[y, x]) & 255
            if channels == 3:
                green = value[1].copy()
                value[0::2] = ((value[0::2] + green) & 255) - green
            values[y, x] = value
    if channels == 3:
        values[:, :, 0::2] += values[:, :, 1:2]
    return values.transpose(3, 0, 1, 2).astype(np.uint8)


def _predicted(values: Array, y: int, x: int) -> Array:
    if y == 0 or x == 0:
        return values[y, x - 1] if x else values[y - 1, x] if y else np.zeros_like(values[0, 0])
    left, up, corner = values[y, x - 1], values[y - 1, x], values[y - 1, x - 1]
    low, high = np.minimum(left, up), np.maximum(left, up)
    return np.where(corner >= high, low, np.where(corner <= low, high, left + up - corner))


def _unxz(stream: bytes, most: int) -> bytes:
    """Return the decompressed stream, of at most `most` bytes."""
    decompressor = lzma.LZMADecompressor(format=lzma.FORMAT_XZ)
    try:
        content = decompressor.decompress(stream, most + 1)
    except lzma.LZMAError as error:
        raise DataError(f"expected an xz stream, got {error}") from error
    if len(content) > most or not decompressor.eof:
        raise DataError(f"expected a whole xz stream of at most {most} bytes, got more or a torn one")
    return content
