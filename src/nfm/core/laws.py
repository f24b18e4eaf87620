"""The laws of one noise value."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Values = NDArray[np.float32]


@dataclass(frozen=True)
class Law:
    """A zero-mean law of one noise value: two ways to draw at a level, and its root mean square at level 1.

    `fill` is torch's own, for every device; `fill_block` is the fastest without a compiler, for a contiguous array.
    """

    fill: Callable[[Tensor, torch.Generator, float], Tensor]
    fill_block: Callable[[Values, int, float], None]
    rms: float


def _gaussian_block(out: Values, key: int, level: float) -> None:
    """Make two values of two words, by Box and Muller's formula: radius * cos(angle) and radius * sin(angle)."""
    if out.size % 2:
        pairs = np.empty(out.size + 1, np.float32)
        _gaussian_block(pairs, key, level)
        np.copyto(out, pairs[:-1].reshape(out.shape))
        return
    words, flat = _words(key, out.size), out.reshape(-1)
    words[: out.size // 2] |= 1  # none is 0, whose logarithm is infinite
    np.copyto(flat, words, casting="unsafe")
    radius, angle = np.split(flat, 2)
    np.abs(radius, out=radius)
    np.multiply(radius, np.float32(2**-31), out=radius)  # uniform in (0, 1]
    np.log(radius, out=radius)
    np.multiply(radius, np.float32(-2 * level**2), out=radius)
    np.sqrt(radius, out=radius)
    np.multiply(angle, np.float32(math.pi * 2**-31), out=angle)
    cosine, sine = np.split(words.view(np.float32), 2)  # nobody needs the words any more, but their memory
    np.cos(angle, out=cosine)
    np.sin(angle, out=sine)
    np.multiply(radius, sine, out=angle)
    np.multiply(radius, cosine, out=radius)


def _uniform_block(out: Values, key: int, level: float) -> None:
    np.copyto(out, _words(key, out.size).reshape(out.shape), casting="unsafe")
    np.multiply(out, np.float32(level * 2**-31), out=out)


def _rademacher_block(out: Values, key: int, level: float) -> None:
    signs = _words(key, out.size).reshape(out.shape) >> 31 | 1
    np.multiply(signs, np.float32(level), out=out, casting="unsafe")


def _words(key: int, count: int) -> NDArray[Any]:
    """Return random whole numbers of 32 bits, by numpy's SFC64, which is faster than torch's generator."""
    pairs = np.random.Generator(np.random.SFC64(key)).integers(
        -(2**63), 2**63 - 1, size=(count + 1) // 2, dtype=np.int64, endpoint=True
    )
    return pairs.view(np.int32)[:count]


LAWS: dict[str, Law] = {
    "gaussian": Law(
        lambda out, generator, level: out.normal_(0, level, generator=generator), _gaussian_block, 1.0
    ),
    "uniform": Law(
        lambda out, generator, level: out.uniform_(-level, level, generator=generator),
        _uniform_block,
        1 / math.sqrt(3),
    ),
    "rademacher": Law(
        lambda out, generator, level: out.random_(0, 2, generator=generator).sub_(0.5).mul_(2 * level),
        _rademacher_block,
        1.0,
    ),
}
