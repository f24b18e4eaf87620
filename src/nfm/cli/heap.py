"""The C library's heap: what a step frees stays with the process, for the next step.

By default glibc gives big pieces of memory back to the system as soon as they are free. A training step frees its
activations at its end, and the next one gets them again page by page: thousands of page faults, each page zeroed first.
The command line owns its process and may change that; a library may not.
"""

from __future__ import annotations

import ctypes
import os

_M_TRIM_THRESHOLD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -4, -8  # malloc.h
_SETTINGS = {
    _M_TRIM_THRESHOLD: -1,  # never
    _M_MMAP_MAX: 0,  # no piece is mapped on its own, and unmapped when it is free
    _M_ARENA_MAX: 1,  # one heap for all threads: others unmap what they no longer need
}
_USERS_OWN = (
    "GLIBC_TUNABLES",
    "MALLOC_TRIM_THRESHOLD_",
    "MALLOC_MMAP_THRESHOLD_",
    "MALLOC_MMAP_MAX_",
    "MALLOC_ARENA_MAX",
)  # mallopt(3)


def keep_freed_memory() -> bool:
    """Let freed memory stay in the heap; tell whether it does: not without glibc, nor against the user's settings."""
    if any(name in os.environ for name in _USERS_OWN):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library, or none that can be asked
        return False
    return all(mallopt(setting, value) for setting, value in _SETTINGS.items())
