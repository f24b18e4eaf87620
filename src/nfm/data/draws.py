"""Random numbers for each example of its own, all at once: a hash of (key, id, slot).

A generator per example would cost microseconds each; an integer hash over arrays costs nanoseconds, and an
example's numbers do not depend on which batch, rank or worker it lands in.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # splitmix64's increment (Steele, Lea, Flood 2014, fig. 16)
FIRST = np.uint64(0xBF58476D1CE4E5B9)  # its two multipliers, the same figure ("variant 13" of Stafford)
SECOND = np.uint64(0x94D049BB133111EB)


def scramble(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return splitmix64's finaliser of each word, a bijection in which every input bit moves every output."""
    words = (words ^ (words >> np.uint64(30))) * FIRST
    words = (words ^ (words >> np.uint64(27))) * SECOND
    return words ^ (words >> np.uint64(31))


def uniforms(ids: Tensor | NDArray[Any], count: int, *, key: int) -> NDArray[np.float64]:
    """Return `count` uniforms on [0,1) for each id: float64 (n,count), a function of (key, id, slot) alone.

    >>> a = uniforms(np.array([3, 8]), 2, key=1)
    >>> bool((a[1] == uniforms(np.array([8]), 2, key=1)[0]).all())
    True
    """
    names = np.asarray(ids).astype(np.uint64)
    seed = scramble(np.array([key], dtype=np.uint64) + GOLDEN)
    stream = scramble(scramble(names + seed) ^ seed)
    slots = GOLDEN * np.arange(1, count + 1, dtype=np.uint64)
    words = scramble(stream[:, None] + slots)
    return np.asarray((words >> np.uint64(11)) * 2.0**-53, dtype=np.float64)
