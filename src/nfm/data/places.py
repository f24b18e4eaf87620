"""Where data may lie on this machine."""

from __future__ import annotations

import os
from pathlib import Path

from nfm.errors import DataError

VARIABLE = "NFM_DATA"
DEBIAN = Path("/usr/share/datasets")


def cache_folder() -> Path:
    """Return the folder that downloads go to: $XDG_CACHE_HOME/nfm, or ~/.cache/nfm."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "nfm"


def search_path(root: Path | str | None = None) -> tuple[Path, ...]:
    """Return the folders that are searched, in order: root, $NFM_DATA, ./data, the cache, Debian's."""
    if root is not None and not Path(root).is_dir():
        raise DataError(f"data root: expected a folder, got {str(root)!r}, which is none")
    named = [Path(root)] if root is not None else []
    named += [Path(part) for part in os.environ.get(VARIABLE, "").split(os.pathsep) if part]
    return (*named, Path("data"), cache_folder(), DEBIAN)
