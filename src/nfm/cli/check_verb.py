"""``nfm check FILE``: every error of a recipe at once, or what it would do."""

from __future__ import annotations

import argparse


def add_arguments(options: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    options.add_argument("recipe", help="a recipe: a TOML file, or a name of `nfm list recipes`")
    options.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="any key of a recipe"
    )


def run(given: argparse.Namespace) -> None:
    """Read the recipe and build what needs no data."""
    from nfm.config.build import build_method
    from nfm.config.read import read_config
    from nfm.config.recipes import find_recipe

    config = read_config(find_recipe(given.recipe), given.set)
    method = build_method(config.method, seed=config.train.seed)
    print(f"{given.recipe}: no errors\n{config.model.name} on {config.data.name}\n{method!r}")
    print("sites and shapes are known with the data: `nfm train --dry-run` tries them")
