"""The transposed mixture along the cycles of the permutation, so that each h is made once for the two who need it.

An example gets its own part of its h, and a part of that of who took from it: the one before it on its cycle. A thread
takes a stretch of a cycle, and of its examples a part that stays in cache, from one example to the next.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import torch

from nfm.core.blocks import Block, Index, Values, blocks_of, in_threads
from nfm.core.factors import Factors
from nfm.core.mixing import Pairing

STRETCH = 32  # examples: one more is made for each
PART = 2**15  # elements of an example


def mix_along_cycles(
    out: Values, source: Values, factors: Factors | None, pairing: Pairing, dtype: torch.dtype
) -> None:
    """Write the transposed of `mix` of h = source * factors."""
    own, other = (part.expand(len(out)).numpy() for part in pairing.parts(dtype))

    def h_at(index: Index, memory: Values) -> Values:
        return source[index] if factors is None else np.multiply(source[index], factors.at(index), memory)

    def work(_: int, piece: tuple[list[int], Block]) -> None:
        (before, *stretch), part = piece
        memory, theirs = np.empty_like(out[0][part.at]), np.empty_like(out[0][part.at])
        np.multiply(h_at((before, *part.at), memory), other[before], theirs)
        for row in stretch:
            h, target = h_at((row, *part.at), memory), out[row, *part.at]
            np.multiply(h, own[row], target)
            np.add(target, theirs, target)
            np.multiply(h, other[row], theirs)

    parts = blocks_of(out.shape[1:], limit=PART)
    in_threads(work, list(itertools.product(stretches(pairing.partner.tolist()), parts)), a_thread=1)


def stretches(partner: Sequence[int]) -> list[list[int]]:
    """Cut the cycles of a permutation into stretches, each behind the one that comes before it.

    >>> stretches([1, 2, 0, 3])
    [[2, 0, 1, 2], [3, 3]]
    """
    seen: set[int] = set()
    found = []
    for start in range(len(partner)):
        cycle = []
        while start not in seen:
            seen.add(start)
            cycle.append(start)
            start = partner[start]
        for first in range(0, len(cycle), STRETCH):
            found.append([cycle[first - 1], *cycle[first : first + STRETCH]])
    return found
