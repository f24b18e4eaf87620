"""JPEG as the published files have it: what version 9 of the Independent JPEG Group's library loses.

Colours, cosine transforms and quantisation on whole numbers, and back; the entropy coding between loses nothing
and is left out. Later builds of Pillow carry another library, whose chroma differs by a level on
average. Every number is whole and small enough for the float type that holds it, so all sums are exact.
"""

from __future__ import annotations

import functools
import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from nfm.evaluate.corruptions.planes import to_uint8
from nfm.evaluate.keyed import Stream

# Quantisation tables of ITU-T T.81, Annex K.1 and K.2, row by row.
LUMA = (
    16, 11, 10, 16, 24, 40, 51, 61, 12, 12, 14, 19, 26, 58, 60, 55, 14, 13, 16, 24, 40, 57, 69, 56,
    14, 17, 22, 29, 51, 87, 80, 62, 18, 22, 37, 56, 68, 109, 103, 77, 24, 35, 55, 64, 81, 104, 113, 92,
    49, 64, 78, 87, 103, 121, 120, 101, 72, 92, 95, 98, 112, 100, 103, 99,
)  # fmt: skip
CHROMA = (
    17, 18, 24, 47, 99, 99, 99, 99, 18, 21, 26, 66, 99, 99, 99, 99, 24, 26, 56, 99, 99, 99, 99, 99,
    47, 66, 99, 99, 99, 99, 99, 99, *[99] * 32,
)  # fmt: skip

# The library's constants have 13 bits. It sums them by factors, so a few weights of the whole transform
# are one off from round(2**13 sqrt(2) cos((2 j + 1) k pi / 2 n)): (k, j, by how much), for j < n / 2.
CONSTANT_BITS, EXTRA_BITS = 13, 2  # jfdctint.c, jidctint.c: CONST_BITS, PASS1_BITS
Way = Literal["forward", "inverse"]
EIGHT = ((1, 2, 1), (3, 1, 1), (3, 2, 1), (5, 0, 1), (5, 1, 1), (5, 2, 1), (6, 1, -1), (6, 2, 1))
CORRECTIONS: dict[tuple[Way, int], tuple[tuple[int, int, int], ...]] = {
    ("forward", 8): EIGHT,
    ("inverse", 8): EIGHT,
    ("forward", 16): ((1, 7, -1), (5, 2, 1), (6, 3, -1), (6, 4, 1), (7, 3, 1), (7, 4, 1)),
    ("inverse", 16): (
        (6, 0, -1), (2, 2, 1), (5, 2, 1), (7, 3, 1), (2, 5, -1), (5, 5, -1), (3, 6, 1), (6, 7, 1),
    ),
}  # fmt: skip


def jpeg_compression(pixels: Tensor, stream: Stream, quality: float) -> Tensor:
    """Store and load as JPEG of `quality`, 1 to 100; the published bytes of CIFAR-10-C."""
    height, width = pixels.shape[2:]
    image = F.pad(pixels.float(), (0, -width % 16, 0, -height % 16), mode="replicate")
    luma, blue, red = _to_luma_chroma(*image.unbind(1))
    chroma = _store(torch.cat([blue, red]), CHROMA, 16, quality).chunk(2)
    channels = torch.stack(_to_rgb(_store(luma, LUMA, 8, quality), *chroma), dim=1)
    return to_uint8(channels[..., :height, :width].clamp(0, 255))


def _to_luma_chroma(red: Tensor, green: Tensor, blue: Tensor) -> list[Tensor]:
    """Return levels of luma and of blue and red chroma, centred at 0: float32, weights in 2**-16 (jccolor.c)."""
    weights = ((19595, 38470, 7471, 32768), (-11058, -21710, 32768, 32767), (32768, -27439, -5329, 32767))
    sums = [red * r + green * g + blue * b + half for r, g, b, half in weights]
    luma, *chroma = [total.mul_(2.0**-16).floor_() for total in sums]
    return [luma - 128, *chroma]


def _to_rgb(luma: Tensor, blue: Tensor, red: Tensor) -> list[Tensor]:
    """Return red, green and blue levels of luma and chroma, all centred at 0 (jdcolor.c)."""
    weights = ((0, 91881), (-22553, -46802), (116130, 0))
    bright = luma + 128
    return [bright + (blue * b + red * r + 32768).mul_(2.0**-16).floor_() for b, r in weights]


def _store(plane: Tensor, table: tuple[int, ...], side: int, quality: float) -> Tensor:
    """Quantise the levels (B, H, W) of one component, centred at 0, in blocks of `side`; return what is left.

    Chroma has blocks of 16 that keep the 8x8 lowest coefficients: that is how the library halves it.
    """
    steps = _steps(table, quality).to(plane.device)
    forward, inverse = (_transform(way, side).to(plane.device) for way in ("forward", "inverse"))
    batch, height, width = plane.shape
    rows = _shift(plane.double().view(-1, side) @ forward.T, CONSTANT_BITS - EXTRA_BITS)
    rows = rows.view(batch, height // side, side, width // side * 8)
    found = _shift(
        forward @ rows, CONSTANT_BITS + EXTRA_BITS + (side // 8 - 1) * 2
    )  # 8 times the coefficients
    kept = _quantise(found.view(batch, height // side, 8, -1, 8), steps[:, None]).view_as(found)
    columns = _shift(inverse @ kept, CONSTANT_BITS - EXTRA_BITS)
    levels = _shift(columns.view(-1, 8) @ inverse.T, CONSTANT_BITS + EXTRA_BITS + 3)
    return levels.view(batch, height, width).clamp_(-128, 127).float()


def _quantise(eightfold: Tensor, steps: Tensor) -> Tensor:
    """Round to the nearest multiple of a step, halves away from 0."""
    count = eightfold.abs().add_(steps * 4).div_(steps * 8).floor_()
    return count.mul_(eightfold.sign()).mul_(steps)


def _shift(sums: Tensor, bits: int) -> Tensor:
    """Divide by 2**bits and round, halves up."""
    return sums.mul_(2.0**-bits).add_(0.5).floor_()


@functools.cache
def _steps(table: tuple[int, ...], quality: float) -> Tensor:
    """Return the step of each coefficient at `quality`: float64 (8, 8)."""
    percent = int(5000 // quality if quality < 50 else 200 - 2 * quality)
    steps = [min(max((base * percent + 50) // 100, 1), 255) for base in table]
    return torch.tensor(steps, dtype=torch.float64).view(8, 8)


@functools.cache
def _transform(way: Way, side: int) -> Tensor:
    """Return the cosine transform of `side` samples into 8 coefficients in 2**-13: (8, side), or its inverse."""
    scale = 2**CONSTANT_BITS * math.sqrt(2)
    rows = [
        [round(scale * math.cos((2 * j + 1) * k * math.pi / (2 * side))) for j in range(side)]
        for k in range(8)
    ]
    rows[0] = [2**CONSTANT_BITS] * side
    for k, j, by in CORRECTIONS[way, side]:
        rows[k][j] += by
        rows[k][side - 1 - j] += by * (-1) ** k
    matrix = torch.tensor(rows, dtype=torch.float64)
    return matrix if way == "forward" else matrix.T.contiguous()
