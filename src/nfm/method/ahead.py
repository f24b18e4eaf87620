"""The choices of the next steps, what they begin with and their pairings, made some steps at a time.

Each is a function of its step, so when it is drawn changes nothing but the time: between two steps of a network the
processor's caches hold none of this, and one draw takes longer than it does after another.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import torch

from nfm.core.draw import Choice, weights_of
from nfm.core.mixing import Pairing
from nfm.core.noise import Noise
from nfm.core.onlookers import in_a_mode
from nfm.core.operator import MANY, drawn_pairing
from nfm.randomness import fold, passing_generator

STEPS = 16  # drawn at a time


class Beginning(NamedTuple):
    """What a choice begins with; `pairing` is that of a batch of the size that was told."""

    site: str
    key: int
    weight: float
    pairing: Pairing | None = None


class Laws(NamedTuple):
    """What the beginnings of a run's steps depend on, besides the step."""

    sites: tuple[str, ...]
    seed: int
    rank: int
    alpha: float
    beta: float
    per_sample: bool
    dominant: bool


class Settings(NamedTuple):
    """What a choice depends on, besides the step; the size of the batch and the feature's shape, if they are known."""

    laws: Laws
    kind: type[Choice]
    noise: Noise
    batch: int | None
    shape: tuple[int, ...]

    def choice(self, step: int) -> Choice:
        """Make the choice of `step`."""
        laws = self.laws
        site, key, weight, drawn = beginning_of(step, laws, self.batch, self.kind, self.shape)
        return self.kind(
            site, key=key, step=step, alpha=laws.alpha, beta=laws.beta, weight=weight, drawn=drawn,
            per_sample=laws.per_sample, dominant=laws.dominant, noise=self.noise,
        )  # fmt: skip


class Ahead:
    """The choices of the next steps, made some steps at a time as long as the settings stay the same."""

    def __init__(self) -> None:
        # One attribute: another thread, with other settings, may change it at any time
        self._held: tuple[Settings | None, dict[int, Choice]] = None, {}

    def take(self, step: int, settings: Settings) -> Choice:
        """Return the choice of `step`: nobody else gets the same."""
        if torch.compiler.is_compiling():
            return settings.choice(step)
        of, made = self._held
        if settings != of:
            self._held = settings, {}
            return settings.choice(step)
        choice = made.pop(step, None)
        if choice is None:
            if step + 1 not in made:
                later = range(step + 1, (step // STEPS + 1) * STEPS)
                self._held = settings, {each: settings.choice(each) for each in later}
            return settings.choice(step)
        return choice


def beginning_of(
    step: int, laws: Laws, batch: int | None = None, kind: type[Choice] = Choice, shape: tuple[int, ...] = ()
) -> Beginning:
    """Return what is drawn for `step`; with the pairing of a `batch`, and what else a choice of that kind remembers.

    Not of big batches, whose pairings take memory, and not where nothing is remembered. The feature may have the
    `shape`, () for any.
    """
    block, place = divmod(step, STEPS)
    if batch is None or batch > MANY or torch.compiler.is_compiling() or in_a_mode():
        return _drawn(block, laws)[place]
    return _drawn_with_pairings(block, laws, batch, kind, shape)[place]  # type: ignore[arg-type]  # a class can be hashed


@functools.lru_cache(maxsize=16)  # a step of several schemes asks for as many
def _drawn(block: int, laws: Laws) -> tuple[Beginning, ...]:
    sites, seed, rank, alpha, beta, _, dominant = laws

    def site_of(step: int) -> str:
        if len(sites) == 1:
            return sites[0]
        return sites[int(passing_generator(fold(seed, step, rank, "site")).integers(len(sites)))]

    steps = range(block * STEPS, (block + 1) * STEPS)
    chosen = [site_of(step) for step in steps]
    keys = [fold(seed, step, rank, "draw", site) for step, site in zip(steps, chosen, strict=True)]
    weights = weights_of(keys, alpha, beta, dominant=dominant)
    return tuple(map(Beginning, chosen, keys, weights))


@functools.lru_cache(maxsize=16)
def _drawn_with_pairings(
    block: int, laws: Laws, batch: int, kind: type[Choice], shape: tuple[int, ...]
) -> tuple[Beginning, ...]:
    def with_pairing(begun: Beginning) -> Beginning:
        pairing = drawn_pairing(
            begun.key, batch, begun.weight, laws.alpha, laws.beta,
            per_sample=laws.per_sample, dominant=laws.dominant,
        )  # fmt: skip
        if not laws.per_sample:
            kind.prepare(begun.key, (begun.weight, laws.alpha, laws.beta), pairing, shape)
        return begun._replace(pairing=pairing)

    return tuple(map(with_pairing, _drawn(block, laws)))
