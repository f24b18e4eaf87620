"""The factors 1 + noise of the last forward pass, if they are not too many, kept for its backward pass.

Of a big feature the last ones are not kept: there would be no room in one tensor like the output for what two threads
need for themselves. A memo and no more: it is found by what was drawn, so it changes time and memory and never a
value. Another forward pass in between takes its place, and then the factors are drawn again, as they are for features
too big. The memory is used again by the next step: fresh pages cost time. Every thread has its own: two may draw the
same at once.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from nfm.core.blocks import LONG, blocks_of, is_small
from nfm.core.lasting import lasting
from nfm.core.noise_plan import NoisePlan
from nfm.core.pages import fresh_like

MOST = 2**23  # elements: 32 MiB
SHARE = 7 / 8  # that is kept of a big feature's at most
FEW = 8  # examples: the last one of fewer is more than is to be drawn again


class _Kept(threading.local):
    def __init__(self) -> None:
        self.last: dict[tuple[NoisePlan, tuple[int, ...]], Tensor] = {}  # at most one
        self.idle: list[Tensor] = []  # at most one: nobody reads it any more


_KEPT = _Kept()


def count_of(shape: tuple[int, ...]) -> int:
    """Return how many factors of a feature of `shape` are kept: those of its first examples, in whole blocks."""
    size, example = math.prod(shape), math.prod(shape[1:])
    if is_small(shape) or example < LONG or shape[0] < FEW:
        return size
    starts = (block.first for block in blocks_of(shape) if block.first <= SHARE * size)
    return max(first for first in starts if first % example == 0)


def keep(plan: NoisePlan, shape: tuple[int, ...]) -> Tensor | None:
    """Return memory for the factors of `plan` that are kept from now on, or None for a feature too big."""
    if _KEPT.last:
        _KEPT.idle = list(_KEPT.last.values())
        _KEPT.last.clear()
    if plan.mult is None or math.prod(shape) > MOST:
        return None
    return _KEPT.last.setdefault((plan.linear_part(), shape), _memory(count_of(shape)))


@lasting
def _memory(elements: int) -> Tensor:
    idle = _KEPT.idle.pop() if _KEPT.idle else None
    if idle is not None and len(idle) >= elements:
        return idle
    return fresh_like(torch.empty(elements, dtype=torch.float32, device="cpu"))


def forget() -> None:
    """Forget the factors: the pass that was to draw them did not come to its end."""
    _KEPT.last.clear()


@contextmanager
def taken(plan: NoisePlan, shape: tuple[int, ...]) -> Iterator[Tensor | None]:
    """Lend the factors of `plan`, if they were kept, and forget them."""
    factors = _KEPT.last.pop((plan.linear_part(), shape), None)
    yield factors
    if factors is not None:
        _KEPT.idle = [factors]
