"""Memory for a big output in big pages: a fresh tensor of 32 MB is 16 page faults then, and not 8,192."""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable

import torch
from torch import Tensor

HUGE = 2**21  # bytes of a big page on x86-64 and on ARM with 4 kB pages
WORTH_IT = 4 * HUGE
_MADV_HUGEPAGE = 14  # linux/mman.h


@functools.cache
def _advise() -> Callable[[int, int, int], int] | None:
    """Return madvise(2), None where there is none."""
    if sys.platform != "linux":
        return None
    advise = ctypes.CDLL(None).madvise
    advise.argtypes = [ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int]
    return advise


def fresh_like(x: Tensor) -> Tensor:
    """Return `torch.empty_like(x)`; a big one asks the system for big pages, which it may give or not."""
    out = torch.empty_like(x)
    size, advise = out.numel() * out.element_size(), _advise()
    if advise is not None and size >= WORTH_IT and out.device.type == "cpu":
        first = -(-out.data_ptr() // HUGE) * HUGE
        advise(first, (out.data_ptr() + size - first) // HUGE * HUGE, _MADV_HUGEPAGE)
    return out
