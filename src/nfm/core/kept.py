"""The factors 1 + noise of the last small forward pass, kept for its backward pass: not drawn twice.

A memo and no more: it is found by what was drawn, so it changes time and memory and never a value. Another forward pass
in between takes its place, and then the factors are drawn again, as they are for big features. The memory is used again
by the next step: fresh pages would cost a fifth of the time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from nfm.core.noise_plan import NoisePlan
from nfm.core.pages import fresh_like

MOST = 2**23  # elements: 32 MiB

_LAST: dict[tuple[NoisePlan, tuple[int, ...]], Tensor] = {}
_IDLE: list[Tensor] = []  # at most one: what the last backward pass is done with


def keep(plan: NoisePlan, shape: tuple[int, ...]) -> Tensor | None:
    """Return memory for the factors of `plan`, or None for a feature too big; it is kept from now on."""
    _LAST.clear()
    if plan.mult is None or math.prod(shape) > MOST:
        return None
    return _LAST.setdefault((plan.linear_part(), shape), _memory(math.prod(shape)))


def _memory(elements: int) -> Tensor:
    try:
        idle = _IDLE.pop()
    except IndexError:
        return fresh_like(torch.empty(elements))
    return idle if len(idle) >= elements else fresh_like(torch.empty(elements))


@contextmanager
def taken(plan: NoisePlan, shape: tuple[int, ...]) -> Iterator[Tensor | None]:
    """Lend the factors of `plan`, if they were kept, and forget them."""
    factors = _LAST.pop((plan.linear_part(), shape), None)
    yield factors
    if factors is not None:
        _IDLE[:] = [factors]
