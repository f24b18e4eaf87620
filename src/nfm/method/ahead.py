"""Site, key and weight of the next steps, drawn some steps at a time.

Each is a function of its step, so when it is drawn changes nothing but the time: between two steps of a network the
processor's caches hold none of this, and one draw takes longer than it does after another.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

from nfm.core.draw import weight_of
from nfm.randomness import fold, passing_generator

STEPS = 16  # drawn at a time


class Beginning(NamedTuple):
    """What a choice begins with."""

    site: str
    key: int
    weight: float


def beginning_of(
    step: int, sites: tuple[str, ...], *, seed: int, rank: int, alpha: float, beta: float, dominant: bool
) -> Beginning:
    """Return what is drawn for `step` of a seed on a rank, among `sites`."""
    block, place = divmod(step, STEPS)
    return _drawn(block, sites, seed, rank, alpha, beta, dominant)[place]


@functools.lru_cache(maxsize=16)  # a step of several schemes asks for as many
def _drawn(
    block: int, sites: tuple[str, ...], seed: int, rank: int, alpha: float, beta: float, dominant: bool
) -> tuple[Beginning, ...]:
    def begin(step: int) -> Beginning:
        site = sites[0]
        if len(sites) > 1:
            generator = passing_generator(fold(seed, step, rank, "site"))
            site = sites[int(generator.integers(len(sites)))]
        key = fold(seed, step, rank, "draw", site)
        return Beginning(site, key, weight_of(key, alpha, beta, dominant=dominant))

    return tuple(begin(step) for step in range(block * STEPS, (block + 1) * STEPS))
