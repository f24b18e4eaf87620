"""Site, key and weight of the next steps, and their pairings, drawn some steps at a time.

Each is a function of its step, so when it is drawn changes nothing but the time: between two steps of a network the
processor's caches hold none of this, and one draw takes longer than it does after another.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import torch

from nfm.core.draw import weights_of
from nfm.core.operator import drawn_pairing
from nfm.randomness import fold, passing_generator

STEPS = 16  # drawn at a time


class Beginning(NamedTuple):
    """What a choice begins with."""

    site: str
    key: int
    weight: float


class Laws(NamedTuple):
    """What the beginnings of a run's steps depend on, besides the step."""

    sites: tuple[str, ...]
    seed: int
    rank: int
    alpha: float
    beta: float
    per_sample: bool
    dominant: bool
    batch: int | None  # its size, if it is known: pairings are drawn ahead, too


def beginning_of(step: int, laws: Laws) -> Beginning:
    """Return what is drawn for `step`."""
    block, place = divmod(step, STEPS)
    return _drawn(block, laws)[place]


@functools.lru_cache(maxsize=16)  # a step of several schemes asks for as many
def _drawn(block: int, laws: Laws) -> tuple[Beginning, ...]:
    sites, seed, rank, alpha, beta, per_sample, dominant, batch = laws

    def site_of(step: int) -> str:
        if len(sites) == 1:
            return sites[0]
        return sites[int(passing_generator(fold(seed, step, rank, "site")).integers(len(sites)))]

    steps = range(block * STEPS, (block + 1) * STEPS)
    chosen = [site_of(step) for step in steps]
    keys = [fold(seed, step, rank, "draw", site) for step, site in zip(steps, chosen, strict=True)]
    weights = weights_of(keys, alpha, beta, dominant=dominant)
    if batch is not None and not torch.compiler.is_compiling():
        for key, weight in zip(keys, weights, strict=True):  # to be remembered
            drawn_pairing(key, batch, weight, alpha, beta, per_sample=per_sample, dominant=dominant)
    return tuple(map(Beginning, chosen, keys, weights))
