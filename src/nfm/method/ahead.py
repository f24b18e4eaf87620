"""Site, keys and numbers of the next steps, drawn some steps at a time.

Each is a function of its step, so when it is drawn changes nothing but the time: between two steps of a network the
processor's caches hold none of this, and one draw takes longer than it does after another.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

from nfm.core.arguments import Arguments
from nfm.core.draw import arguments_of, weights_of
from nfm.core.noise import Noise
from nfm.randomness import fold, passing_generator

STEPS = 16  # drawn at a time


class Beginning(NamedTuple):
    """What a choice begins with: its site, its key, and its arguments, for the first who asks."""

    site: str
    key: int
    weight: float
    spare: list[Arguments]

    def take(self) -> Arguments | None:
        """Return the arguments, once: a serial number is for one choice."""
        try:
            return self.spare.pop()
        except IndexError:
            return None


class Laws(NamedTuple):
    """What the beginnings of a run's steps depend on, besides the step."""

    sites: tuple[str, ...]
    seed: int
    rank: int
    alpha: float
    beta: float
    dominant: bool
    noise: Noise


def beginning_of(step: int, laws: Laws) -> Beginning:
    """Return what is drawn for `step`."""
    block, place = divmod(step, STEPS)
    return _drawn(block, laws)[place]


@functools.lru_cache(maxsize=16)  # a step of several schemes asks for as many
def _drawn(block: int, laws: Laws) -> tuple[Beginning, ...]:
    sites, seed, rank, alpha, beta, dominant, noise = laws

    def site_of(step: int) -> str:
        if len(sites) == 1:
            return sites[0]
        return sites[int(passing_generator(fold(seed, step, rank, "site")).integers(len(sites)))]

    steps = range(block * STEPS, (block + 1) * STEPS)
    chosen = [site_of(step) for step in steps]
    keys = [fold(seed, step, rank, "draw", site) for step, site in zip(steps, chosen, strict=True)]
    weights = weights_of(keys, alpha, beta, dominant=dominant)
    return tuple(
        Beginning(site, key, weight, [arguments_of(key, alpha, beta, noise, weight=weight)])
        for site, key, weight in zip(chosen, keys, weights, strict=True)
    )
