"""``nfm train``: a recipe, flags, or both; flags are short for ``--set``."""

from __future__ import annotations

import argparse
from pathlib import Path

from nfm.errors import UsageError

# flag -> (key of a recipe, help)
FLAGS = {
    "data": ("data.name", "data set (nfm list data)"),
    "data-root": ("data.root", "folder to look for the data in first"),
    "subset": ("data.subset", "use a class-balanced subset of this many training examples"),
    "label-noise": ("data.label_noise", "share of training labels replaced by another class"),
    "imbalance": ("data.imbalance", "ratio of the most to the least frequent class"),
    "augment": ("data.augment", "none, crop_flip, autoaugment or random_resized_crop"),
    "model": ("model.name", "network (nfm list models), timm:NAME, torchvision:NAME, module:pkg.mod:factory"),
    "init-from": (
        "model.init_from",
        "run folder, weights file, or timm:NAME, to begin with; the head may be new",
    ),
    "freeze": ("model.freeze", "glob of parameters to freeze"),
    "scheme": ("method.scheme", "scheme (nfm list schemes)"),
    "epochs": ("train.epochs", "epochs"),
    "batch-size": ("train.batch_size", "examples a step, over all processes"),
    "accumulate": ("train.accumulate", "parts to cut a batch into"),
    "seed": ("train.seed", "seed of weights, order, augmentation, mixing and noise"),
    "ema": ("train.ema", "decay of an exponential average of the weights"),
    "clip": ("train.clip", "largest gradient norm"),
    "label-smoothing": ("train.label_smoothing", "label smoothing"),
    "precision": ("train.precision", "float32, bfloat16 or float16 (autocast)"),
    "workers": ("train.workers", "threads that prepare batches; they never change a result"),
    "lr": ("optimizer.lr", "learning rate"),
    "optimizer": ("optimizer.name", "sgd, adam or adamw"),
    "schedule": ("schedule.name", "constant, step, cosine or one_cycle"),
}
SWITCHES = {
    "compile": ("train.compile", "torch.compile the network"),
    "channels-last": ("train.channels_last", "channels-last memory format"),
    "deterministic": ("train.deterministic", "deterministic algorithms only"),
    "sync-batch-norm": ("train.sync_batch_norm", "batch norm over all processes (CUDA)"),
    "download": ("data.download", "download the data if it is not there"),
}


def add_recipe_flags(options: argparse.ArgumentParser) -> None:
    """Declare the flags that change a recipe."""
    for flag, (key, about) in FLAGS.items():
        options.add_argument(f"--{flag}", dest=key, metavar="X", help=f"{about} [{key}]")
    for flag, (key, about) in SWITCHES.items():
        options.add_argument(
            f"--{flag}", dest=key, action="store_const", const="true", help=f"{about} [{key}]"
        )
    options.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="any key of a recipe"
    )


def overrides_of(given: argparse.Namespace) -> list[str]:
    """Return the changes that the flags of a recipe ask for, as KEY=VALUE; --set comes last and wins."""
    keys = [key for key, _ in (FLAGS | SWITCHES).values()]
    return [f"{key}={getattr(given, key)}" for key in keys if getattr(given, key) is not None] + given.set


def add_arguments(options: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    options.add_argument("recipe", nargs="?", help="a recipe: a TOML file, or a name of `nfm list recipes`")
    add_recipe_flags(options)
    options.add_argument("--out", type=Path, help="folder of the run (default runs/NAME)")
    options.add_argument("--resume", choices=["auto"], help="go on with the run in --out, if there is one")
    options.add_argument("--overwrite", action="store_true", help="start anew in --out")
    options.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    options.add_argument(
        "--dry-run", action="store_true", help="print the plan, with time and memory, and stop"
    )
    options.add_argument(
        "--tensorboard", action="store_true", help="write TensorBoard events beside the rows"
    )
    options.add_argument(
        "--theory", action="store_true", help="measure Jacobian norms, regularisers, margins after each epoch"
    )
    options.add_argument("--csv", action="store_true", help="write the rows of epochs as CSV too")


def run(given: argparse.Namespace) -> None:
    """Train, or tell what training would be."""
    from nfm.cli.training import Options, train_run
    from nfm.config.read import read_config
    from nfm.config.recipes import find_recipe

    if given.recipe is None and all(getattr(given, key) is None for key in ("data.name", "model.name")):
        raise UsageError("expected a recipe, or flags such as --data digits --model small_conv --scheme nfm")
    path = find_recipe(given.recipe) if given.recipe else None
    config = read_config(path, overrides_of(given))
    train_run(
        config,
        Options(
            out=given.out, resume=given.resume is not None, overwrite=given.overwrite, device=given.device,
            dry_run=given.dry_run, tensorboard=given.tensorboard, csv=given.csv,
            theory=given.theory,
        ),
    )  # fmt: skip
