"""Site, key and weight of the next steps, and their pairings, drawn some steps at a time.

Each is a function of its step, so when it is drawn changes nothing but the time: between two steps of a network the
processor's caches hold none of this, and one draw takes longer than it does after another.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import torch

from nfm.core.draw import weights_of
from nfm.core.onlookers import in_a_mode
from nfm.core.operator import MANY, drawn_pairing
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
    dominant: bool


def beginning_of(step: int, laws: Laws) -> Beginning:
    """Return what is drawn for `step`."""
    block, place = divmod(step, STEPS)
    return _drawn(block, laws)[place]


@functools.lru_cache(maxsize=16)  # a step of several schemes asks for as many
def _drawn(block: int, laws: Laws) -> tuple[Beginning, ...]:
    sites, seed, rank, alpha, beta, dominant = laws

    def site_of(step: int) -> str:
        if len(sites) == 1:
            return sites[0]
        return sites[int(passing_generator(fold(seed, step, rank, "site")).integers(len(sites)))]

    steps = range(block * STEPS, (block + 1) * STEPS)
    chosen = [site_of(step) for step in steps]
    keys = [fold(seed, step, rank, "draw", site) for step, site in zip(steps, chosen, strict=True)]
    weights = weights_of(keys, alpha, beta, dominant=dominant)
    return tuple(map(Beginning, chosen, keys, weights))


def draw_pairings(
    step: int, laws: Laws, batch: int, *, per_sample: bool, prepare: Callable[[int], None]
) -> None:
    """Draw the pairings of `step` and of the next ones, for batches of one size, to be remembered.

    `prepare` draws what else a choice with one weight a batch needs, from its key. Not of big batches, whose pairings
    take memory, and not where nothing is remembered.
    """
    if batch <= MANY and not torch.compiler.is_compiling() and not in_a_mode():
        _draw_pairings(step // STEPS, laws, batch, per_sample, prepare)


@functools.lru_cache(maxsize=16)
def _draw_pairings(
    block: int, laws: Laws, batch: int, per_sample: bool, prepare: Callable[[int], None]
) -> None:
    for _, key, weight in _drawn(block, laws):
        if not per_sample:
            prepare(key)
        drawn_pairing(
            key, batch, weight, laws.alpha, laws.beta, per_sample=per_sample, dominant=laws.dominant
        )
