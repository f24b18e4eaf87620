"""``nfm copy RECIPE``: a recipe of the package as a file of one's own."""

from __future__ import annotations

import argparse
from pathlib import Path

from nfm.errors import UsageError


def add_arguments(options: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    options.add_argument("recipe", help="a name of `nfm list recipes`")
    options.add_argument("to", nargs="?", type=Path, help="the file to write (default: its name here)")


def run(given: argparse.Namespace) -> None:
    """Copy the recipe; a file that is there is not touched."""
    from nfm.config.recipes import find_recipe

    source = find_recipe(given.recipe)
    target = given.to or Path(source.name)
    if target.exists():
        raise UsageError(f"{target} is there already; name another file")
    target.write_bytes(source.read_bytes())
    print(f"{target}: change it, then `nfm train {target}`")
