"""A disk that fails: said once, with the room that is left and what to do."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nfm.errors import EnvironmentProblem


@contextmanager
def writing(what: str, path: Path) -> Iterator[None]:
    """Turn a failure to write `what` at `path` into one that a person can act on."""
    try:
        yield
    except OSError as error:
        raise EnvironmentProblem(
            f"cannot write {what} {path}: {error.strerror or error}, {free_bytes(path):,} bytes free; what was "
            "written before is kept; make room or mend the disk, and start again with --resume auto"
        ) from error


def free_bytes(path: Path) -> int:
    """Return the room left where `path` is or would be."""
    existing = next((place for place in (path, *path.parents) if place.exists()), Path("/"))
    return shutil.disk_usage(existing).free
