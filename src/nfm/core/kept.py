"""The factors 1 + noise of the last small forward pass, kept for its backward pass: not drawn twice.

A memo and no more: it is found by what was drawn, so it changes time and memory and never a value. Another forward pass
in between takes its place, and then the factors are drawn again, as they are for big features.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from nfm.core.noise_plan import NoisePlan
from nfm.core.pages import fresh_like

MOST = 2**23  # elements: 32 MiB

_LAST: dict[tuple[NoisePlan, tuple[int, ...]], Tensor] = {}


def keep(plan: NoisePlan, shape: tuple[int, ...]) -> Tensor | None:
    """Return memory [elements] for the factors of `plan`, or None for a feature too big; it is kept from now on."""
    _LAST.clear()
    if plan.mult is None or math.prod(shape) > MOST:
        return None
    return _LAST.setdefault((plan.linear_part(), shape), fresh_like(torch.empty(math.prod(shape))))


def take(plan: NoisePlan, shape: tuple[int, ...]) -> Tensor | None:
    """Return the factors of `plan` if they were kept, and forget them."""
    return _LAST.pop((plan.linear_part(), shape), None)
