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
Start = NDArray[np.uint64]  # [3]: of SFC64

_UNIT, _HALF_TURN = (
    np.float32(2**-31),
    np.float32(math.pi * 2**-15),
)  # of whole numbers of 32 and 16 bits, with a sign


@dataclass(frozen=True)
class Law:
    """A zero-mean law of one noise value: two ways to draw at a level, and its root mean square at level 1.

    `fill` is torch's own, for every device; `fill_block` is the fastest without a compiler, for a contiguous array. Its
    calls are few and plain: threads that draw wait for each other in what Python does between numpy's operations.
    """

    fill: Callable[[Tensor, torch.Generator, float], Tensor]
    fill_block: Callable[[Values, Start, float], None]
    rms: float


def _gaussian_block(out: Values, start: Start, level: float) -> None:
    """Make values in pairs, by Box and Muller's formula: radius * cos(angle) and radius * sin(angle).

    A radius is made of 32 random bits, which its tail needs, and an angle of 16: 65,536 directions are enough.
    """
    half = -(-out.size // 2)
    if out.size % 2:
        pairs = np.empty(2 * half, np.float32)
        _gaussian_block(pairs, start, level)
        np.copyto(out, pairs[:-1].reshape(out.shape))
        return
    words, flat = _words(start, 6 * half), out.reshape(-1)
    lengths, turns = words.view(np.int32)[:half], words.view(np.int16)[2 * half : 3 * half]
    radius, angle = flat[:half], flat[half:]
    np.bitwise_or(lengths, 1, lengths)  # none is 0, whose logarithm is infinite
    np.copyto(radius, lengths, "unsafe")
    np.abs(radius, radius)
    np.multiply(radius, _UNIT, radius)  # uniform in (0, 1]
    np.log(radius, radius)
    np.multiply(radius, np.float32(-2 * level**2), radius)
    np.sqrt(radius, radius)
    np.copyto(angle, turns)
    np.multiply(angle, _HALF_TURN, angle)
    cosine = words.view(np.float32)[:half]  # nobody needs the words any more, but their memory
    np.cos(angle, cosine)
    np.sin(angle, angle)
    np.multiply(radius, angle, angle)
    np.multiply(radius, cosine, radius)


def _uniform_block(out: Values, start: Start, level: float) -> None:
    np.copyto(out, _signed(start, out.shape), "unsafe")
    np.multiply(out, np.float32(level * 2**-31), out)


def _rademacher_block(out: Values, start: Start, level: float) -> None:
    signs = _signed(start, out.shape) >> 31 | 1
    np.multiply(signs, np.float32(level), out=out, casting="unsafe")


class _Started(np.random.bit_generator.ISeedSequence):
    """A generator's start, as it is: there are enough bits in it, and mixing a key into as many takes longer."""

    def __init__(self, start: Start) -> None:
        self.start = start

    def generate_state(self, n_words: int, dtype: Any = np.uint64) -> Start:
        return self.start


def _signed(start: Start, shape: tuple[int, ...]) -> NDArray[np.int32]:
    """Return random whole numbers of 32 bits."""
    count = math.prod(shape)
    return _words(start, 4 * count).view(np.int32)[:count].reshape(shape)


def _words(start: Start, size: int) -> NDArray[np.uint64]:
    """Return at least `size` random bytes, by numpy's SFC64, which is faster than torch's generator."""
    generator = np.random.SFC64(_Started(start))  # type: ignore[arg-type]  # numpy's types do not know of its protocol
    return generator.random_raw(-(-size // 8))


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
