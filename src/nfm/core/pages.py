"""Memory for big outputs: in big pages, and used again.

A fresh tensor of 32 MB costs 8,192 page faults, and 16 if its pages are big; the memory of one that died costs none. So
the memory of the last two that died is kept. Who holds a tensor, a view of it or an array over it has its memory alone.
"""

from __future__ import annotations

import collections
import ctypes
import functools
import sys
import weakref
from collections.abc import Callable

import torch
from torch import Tensor

from nfm.core.lasting import lasting

HUGE = 2**21  # bytes of a big page on x86-64 and on ARM with 4 kB pages
WORTH_IT = 4 * HUGE
USED_AGAIN = 2**26  # bytes at most: the idle ones are not to be missed elsewhere
_MADV_HUGEPAGE = 14  # linux/mman.h

_IDLE: collections.deque[Tensor] = collections.deque(maxlen=2)  # the oldest falls out


@functools.cache
def _advise() -> Callable[[int, int, int], int] | None:
    """Return madvise(2), None where there is none."""
    if sys.platform != "linux":
        return None
    advise = ctypes.CDLL(None).madvise
    advise.argtypes = [ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int]
    return advise


def fresh_like(x: Tensor) -> Tensor:
    """Return `torch.empty_like(x)`; the memory of a big one may be that of another that died."""
    size = x.numel() * x.element_size()
    if size < WORTH_IT or x.device.type != "cpu":
        return torch.empty_like(x)
    if size > USED_AGAIN or x.dtype not in (torch.float32, torch.float64):
        return _in_big_pages(torch.empty_like(x))
    return _lent(_memory(size), torch.empty_like(x, device="meta"))


def _lent(memory: Tensor, like: Tensor) -> Tensor:
    """Return a tensor like `like` in `memory`, which is idle when nobody has the tensor any more."""
    array = memory.view(like.dtype).as_strided(like.shape, like.stride()).numpy()
    weakref.finalize(array, _IDLE.append, memory).atexit = False
    return torch.from_numpy(array)


@lasting
def _memory(size: int) -> Tensor:
    """Return `size` bytes, idle ones if there are some of that size."""
    for _ in range(len(_IDLE)):
        try:
            memory = _IDLE.popleft()
        except IndexError:  # another thread was sooner
            break
        if len(memory) == size:
            return memory
        _IDLE.append(memory)
    return _in_big_pages(torch.empty(size, dtype=torch.uint8, device="cpu"))


def _in_big_pages(out: Tensor) -> Tensor:
    """Ask the system for big pages, which it may give or not."""
    size, advise = out.numel() * out.element_size(), _advise()
    if advise is not None:
        first = -(-out.data_ptr() // HUGE) * HUGE
        advise(first, (out.data_ptr() + size - first) // HUGE * HUGE, _MADV_HUGEPAGE)
    return out
