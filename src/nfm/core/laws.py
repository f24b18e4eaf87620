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

from nfm.randomness import torch_generator

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
    torch.from_numpy(out).normal_(0, level, generator=torch_generator(key))


def _uniform_block(out: Values, key: int, level: float) -> None:
    """Take the words of numpy's SFC64, which is faster than torch's generator."""
    np.copyto(out, _words(key, out), casting="unsafe")
    np.multiply(out, np.float32(level * 2**-31), out=out)


def _rademacher_block(out: Values, key: int, level: float) -> None:
    signs = _words(key, out) >> 31 | 1
    np.multiply(signs, np.float32(level), out=out, casting="unsafe")


def _words(key: int, like: Values) -> NDArray[Any]:
    """Return random whole numbers of 32 bits in the shape of `like`."""
    pairs = np.random.Generator(np.random.SFC64(key)).integers(
        -(2**63), 2**63 - 1, size=(like.size + 1) // 2, dtype=np.int64, endpoint=True
    )
    return pairs.view(np.int32)[: like.size].reshape(like.shape)


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
