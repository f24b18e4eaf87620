"""Pixels as a PNG inside the page: no file, no library."""

from __future__ import annotations

import base64
import struct
import zlib

import numpy as np
from numpy.typing import NDArray


def encode_png(pixels: NDArray[np.uint8]) -> bytes:
    """Return uint8 pixels (H, W, 1) or (H, W, 3) as a PNG file (W3C, "PNG Specification", third edition)."""
    height, width, channels = pixels.shape
    head = struct.pack(">IIBBBBB", width, height, 8, {1: 0, 3: 2}[channels], 0, 0, 0)
    lines = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, -1)], axis=1)  # filter 0
    parts = ((b"IHDR", head), (b"IDAT", zlib.compress(lines.tobytes(), 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, content) for kind, content in parts)


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def data_address(pixels: NDArray[np.uint8]) -> str:
    """Return the pixels as the address of an image."""
    return "data:image/png;base64," + base64.b64encode(encode_png(pixels)).decode()
