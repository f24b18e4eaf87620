"""``nfm tune``: noise levels, alpha and sites by clean and robust accuracy on validation examples."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from nfm.cli.train_verb import add_recipe_flags, overrides_of

if TYPE_CHECKING:
    from nfm.config.schema import Config

DEFAULT_RECIPE = "digits/nfm"
DEFAULT_STUDY = ("train.epochs=40", "data.validation=0.4")  # 600 digits to train on, 400 to choose by
DEFAULT_LEVELS = ("white_noise=0.3,0.5", "salt_and_pepper=0.1,0.2")  # lower ones hardly harm digits
SUITE = "cifar"  # white noise .1 .2 .3, salt and pepper .02 .04 .1

EPILOG = """Without a recipe and flags it tunes nfm on digits (minutes). The recipe must leave a validation part;
the test part is never looked at. Trial 0 is the recipe's own setting, and plain training (erm) is measured
beside. A trial that after a third of its epochs is worse in both accuracies than half of those before it is
dropped. The same command goes on where it was stopped; a larger --trials adds to it.
It leaves rows.jsonl, pareto.png, and recipes front/NN.toml for `nfm train`."""


def add_arguments(options: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    options.epilog = EPILOG
    options.add_argument("recipe", nargs="?", help="a recipe: a TOML file, or a name of `nfm list recipes`")
    options.add_argument("--trials", type=int, default=24, help="trials in all (default 24)")
    options.add_argument(
        "--levels",
        nargs="+",
        default=[],
        metavar="NAME=L,L",
        help=f"perturbations whose mean accuracy counts (default: those of `nfm evaluate --suite {SUITE}`; "
        f"without a recipe {' '.join(DEFAULT_LEVELS)})",
    )
    options.add_argument(
        "--keep-all", action="store_true", help="drop no trial early: strong noise learns slowly"
    )
    add_recipe_flags(options)
    options.add_argument("--out", type=Path, help="folder of the study (default runs/tune-NAME)")
    options.add_argument("--overwrite", action="store_true", help="start anew in --out")
    options.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N")


def run(given: argparse.Namespace) -> None:
    """Search, and tell what was found."""
    from nfm.cli.evaluating import kept_in
    from nfm.cli.levels import parse_levels
    from nfm.cli.training import default_out
    from nfm.evaluate.suites import SUITES
    from nfm.train.folder import check_name
    from nfm.tune.front import finish
    from nfm.tune.study import tune

    config = _config(given)
    levels = given.levels or (DEFAULT_LEVELS if _is_default(given) else ())
    cells = parse_levels(levels) if levels else SUITES[SUITE]
    plain = default_out(config)
    out = check_name(given.out or plain.with_name(f"tune-{plain.name}"))
    with kept_in(out, what="trials"):
        study = tune(
            config, cells, trials=given.trials, out=out, prune=not given.keep_all, device=given.device,
            overwrite=given.overwrite,
        )  # fmt: skip
        print(finish(study))


def _is_default(given: argparse.Namespace) -> bool:
    return (
        given.recipe is None and getattr(given, "data.name") is None and getattr(given, "model.name") is None
    )


def _config(given: argparse.Namespace) -> Config:
    """Return the recipe that the flags describe; without any, that of the default study."""
    from nfm.config.read import read_config
    from nfm.config.recipes import find_recipe

    if _is_default(given):
        return read_config(find_recipe(DEFAULT_RECIPE), [*DEFAULT_STUDY, *overrides_of(given)])
    return read_config(find_recipe(given.recipe) if given.recipe else None, overrides_of(given))
