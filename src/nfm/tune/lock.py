"""One process at a time in the folder of a study."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nfm.errors import EnvironmentProblem

LOCK = ".lock"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder while inside; the kernel lets go of it, even after kill -9."""
    folder.mkdir(parents=True, exist_ok=True)
    file = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(file)
        raise EnvironmentProblem(
            f"out: {folder} is in use by another process; wait for it, or use another --out"
        ) from None
    try:
        yield
    finally:
        os.close(file)
