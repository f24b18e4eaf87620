"""Noise that hits each value by itself: the law of the new level, given the old one, is a table 256 x 256.

All four families (Gaussian, shot, impulse, speckle) end in 8 bits and start from 8 bits. So a
draw needs no logarithm and no Poisson loop: one uniform number and one look-up by Walker's alias method
(Walker 1977), whatever the law. The law itself is computed once, in float64.
"""

from __future__ import annotations

import functools

import numpy as np
import torch
from torch import Tensor

from nfm.core import compiled
from nfm.core.kernel import kernel_in_use
from nfm.evaluate.keyed import WHOLE_BITS, Stream

LEVELS = 256
COIN = 2 ** (WHOLE_BITS - 8)  # 8 bits of a draw choose a column, the others decide between it and its alias
Law = Tensor  # float64 (256, 256): row v is the law of the new level where the old one is v


def gaussian_noise(pixels: Tensor, stream: Stream, deviation: float) -> Tensor:
    """Add a normal number of `deviation` to each value."""
    return _draw(pixels, stream, _table("gaussian", deviation))


def speckle_noise(pixels: Tensor, stream: Stream, deviation: float) -> Tensor:
    """Add a normal number of `deviation` times the value to each value."""
    return _draw(pixels, stream, _table("speckle", deviation))


def shot_noise(pixels: Tensor, stream: Stream, photons: float) -> Tensor:
    """Count photons: a Poisson number of mean value * `photons`, over `photons`."""
    return _draw(pixels, stream, _table("shot", photons))


def impulse_noise(pixels: Tensor, stream: Stream, share: float) -> Tensor:
    """Set `share` of the values, each channel by itself, to 0 or to 1."""
    return _draw(pixels, stream, _table("impulse", share))


def _draw(pixels: Tensor, stream: Stream, table: Tensor) -> Tensor:
    """Return for each value the column that 8 bits of its draw choose, or, if the coin says so, its alias."""
    if pixels.device.type == "cpu" and kernel_in_use() == "c":
        return compiled.draw_levels(pixels, stream.keys, table)
    return draw_readably(pixels, stream, table)


def draw_readably(pixels: Tensor, stream: Stream, table: Tensor) -> Tensor:
    """Do it with torch's own operations: for other devices, and the oracle of the compiled kernel, bit for bit."""
    drawn = stream.whole(pixels.shape[1:])  # coin << 8 | column
    place = pixels.to(torch.int32).bitwise_left_shift_(8).bitwise_or_(drawn & (LEVELS - 1))
    found = table.to(pixels.device).index_select(0, place.flatten()).view_as(place)
    # The sign of the difference, spread over all bits, masks the change from column to alias.
    lost = torch.sub(found, drawn, out=place).bitwise_right_shift_(31)
    return lost.bitwise_and_(found).bitwise_xor_(drawn).to(torch.uint8)  # the lowest byte


@functools.lru_cache(maxsize=32)
def _table(kind: str, parameter: float) -> Tensor:
    return alias_table(noise_law(kind, parameter))


def noise_law(kind: str, parameter: float) -> Law:
    """Return the law of a kind of noise: P(new level | old level), levels truncated, not rounded."""
    laws = {"gaussian": _gaussian_law, "speckle": _speckle_law, "shot": _shot_law, "impulse": _impulse_law}
    return laws[kind](parameter)


def _gaussian_law(deviation: float) -> Law:
    return _normal_law(torch.full((LEVELS, 1), 255 * deviation, dtype=torch.float64))


def _speckle_law(deviation: float) -> Law:
    return _normal_law(torch.arange(LEVELS, dtype=torch.float64)[:, None] * deviation)


def _normal_law(deviation: Tensor) -> Law:
    """Return the law of level + deviation * normal, clipped and truncated; deviation: (256, 1), in levels."""
    old = torch.arange(LEVELS, dtype=torch.float64)[:, None]
    above = torch.arange(1, LEVELS, dtype=torch.float64)
    share = torch.special.ndtr((above - old) / deviation.clamp(min=1e-9))  # P(new level < above)
    ends = torch.zeros(LEVELS, 1, dtype=torch.float64), torch.ones(LEVELS, 1, dtype=torch.float64)
    return torch.cat([ends[0], share, ends[1]], dim=1).diff(dim=1)


def _shot_law(photons: float) -> Law:
    counts = np.arange(int(photons))  # more are clipped to level 255
    mean = torch.arange(LEVELS, dtype=torch.float64)[:, None] / 255 * photons
    number = torch.from_numpy(counts).double()
    likely = (torch.xlogy(number, mean) - mean - torch.lgamma(number + 1)).exp()
    level = torch.from_numpy((counts / photons * 255).astype(np.int64))
    law = torch.zeros(LEVELS, LEVELS, dtype=torch.float64).index_add_(1, level, likely)
    law[:, -1] += (1 - law.sum(1)).clamp(min=0)
    return law


def _impulse_law(share: float) -> Law:
    law = torch.eye(LEVELS, dtype=torch.float64) * (1 - share)
    law[:, [0, -1]] += share / 2
    return law


def alias_table(law: Law) -> Tensor:
    """Return Walker's table of every row: int32 (256 * 256,), threshold << 8 | (column ^ alias).

    The poorest column of a row is filled up by the richest one, and is done: 255 times.
    """
    left, rows = law.numpy() * LEVELS, np.arange(LEVELS)
    kept = np.full((LEVELS, LEVELS), COIN)  # on how many coins a column is kept
    change = np.zeros((LEVELS, LEVELS), dtype=np.int64)
    for _ in range(LEVELS - 1):
        poor, rich = left.argmin(1), left.argmax(1)
        share = left[rows, poor]
        # Where all columns are full, the poorest is one that is done: it keeps what it has.
        kept[rows, poor] = np.minimum(kept[rows, poor], np.rint(share * COIN))
        change[rows, poor] = np.where(share < 1, poor ^ rich, change[rows, poor])
        left[rows, rich] -= 1 - share
        left[rows, poor] = 1
    # A column is lost if threshold << 8 | change < coin << 8 | column: that counts the tie of the coin.
    threshold = kept - 1 + (change < np.arange(LEVELS))
    return torch.from_numpy(threshold << 8 | change).to(torch.int32).flatten()
