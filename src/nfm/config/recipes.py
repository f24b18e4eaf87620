"""The recipes that come with the package: where they are, and what their heads say."""

from __future__ import annotations

import os
from pathlib import Path

import nfm
from nfm.errors import UsageError, did_you_mean


def recipes_folder() -> Path:
    """Return the folder of the recipes: inside an installed package, or beside the sources."""
    package = Path(nfm.__file__).parent
    installed = package / "recipes"
    return installed if installed.is_dir() else package.parents[1] / "recipes"


def studies_folder() -> Path:
    """Return the folder of the studies: tables and figures of the paper, for `nfm reproduce`."""
    return recipes_folder() / "paper"


def recipe_names() -> dict[str, Path]:
    """Return the recipes of single runs by name: the path below the folder, without its ending."""
    folder = recipes_folder()
    found = [path for path in sorted(folder.rglob("*.toml")) if path.parent != studies_folder()]
    return {str(path.relative_to(folder).with_suffix("")): path for path in found}


def find_recipe(name: str) -> Path:
    """Return the recipe called `name`: a path of one's own, or one that comes with the package."""
    if name.endswith(".toml") and os.path.exists(name):  # unlike Path.exists, no error for a name too long
        return Path(name)
    known = recipe_names()
    bare = name.removesuffix(".toml")
    if bare not in known:
        raise UsageError(
            f"no recipe {name!r}: it is no file, and not one of {', '.join(known)}{did_you_mean(bare, known)}"
        )
    return known[bare]


def head_of(path: Path) -> str:
    """Return the comment that a recipe begins with."""
    lines = path.read_text(encoding="utf-8").splitlines()
    end = next((i for i, line in enumerate(lines) if not line.startswith("#")), len(lines))
    return "\n".join(line.removeprefix("#").strip() for line in lines[:end])
