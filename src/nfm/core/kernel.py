"""Which code draws noise and mixes on the CPU: the compiled kernel (``c``), or PyTorch alone (``torch``).

Both follow the same laws and draw different streams, so the one in use is part of what a run is. ``NFM_KERNEL`` names
it; ``auto``, the default, is ``c`` where the kernel was built.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from nfm.core import compiled
from nfm.errors import EnvironmentProblem, UsageError, did_you_mean

STREAMS = {
    "c": "sfc32 by Threefry",
    "torch": "SFC64 a block of 196,608 elements at most, small features whole",
}  # another word for every change of values
KERNELS = tuple(STREAMS)
AUTO = "auto"
VARIABLE = "NFM_KERNEL"

_VARIABLE = getattr(os.environ, "encodekey", str)(VARIABLE)

_asked: list[str] = []  # by `use_kernel`, the innermost last


def kernel_in_use() -> str:
    """Return ``c`` or ``torch``; refuse a name that is neither, and ``c`` where it cannot be used."""
    name = _asked[-1] if _asked else _told() or AUTO
    if name == AUTO:
        return "torch" if compiled.problem() else "c"
    if name not in KERNELS:
        known = (AUTO, *KERNELS)
        raise UsageError(
            f"{VARIABLE}: expected one of {', '.join(known)}, got {name!r}{did_you_mean(name, known)}"
        )
    if name == "c" and (problem := compiled.problem()):
        raise EnvironmentProblem(f"{VARIABLE}: the compiled kernel cannot be used: {problem}; or use 'torch'")
    return name


def _told() -> str | None:
    """Return what NFM_KERNEL says; every step asks, and `os.environ.get` takes two exceptions to find nothing."""
    try:
        if _VARIABLE not in os.environ._data:  # type: ignore[attr-defined]
            return None
    except AttributeError:  # Python keeps this to itself, and may call it otherwise
        pass
    return os.environ.get(VARIABLE)


@contextmanager
def use_kernel(name: str) -> Iterator[str]:
    """Use the kernel `name` in all threads of this process until the end of the block, whatever NFM_KERNEL says.

    >>> with use_kernel("torch"):
    ...     kernel_in_use()
    'torch'
    """
    _asked.append(name)
    try:
        yield kernel_in_use()
    finally:
        _asked.pop()
