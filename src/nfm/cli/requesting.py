"""The flags that say which network is measured on which data: shared by the verbs that load one."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from nfm.errors import UsageError

if TYPE_CHECKING:
    from nfm.cli.candidates import Request

SOURCE = "folder of a run, a checkpoint, weights, timm:NAME, torchvision:NAME"


def add_data_flags(options: argparse.ArgumentParser) -> None:
    """Declare where the examples come from."""
    options.add_argument("--data", help="data set to measure on (default: the run's own test part)")
    options.add_argument("--data-root", help="folder to look for the data in first")


def add_weights_flags(options: argparse.ArgumentParser) -> None:
    """Declare what a file of weights does not tell."""
    files = options.add_argument_group("for a file of weights")
    files.add_argument("--model", help="the network the weights are of (nfm list models)")
    files.add_argument(
        "--option", action="append", default=[], metavar="NAME=VALUE", help="an option of that network"
    )
    files.add_argument(
        "--normalisation", help="data, authors, imagenet or none, where the file does not tell"
    )


def make_request(given: argparse.Namespace, source: str) -> Request:
    """Return what the flags ask for, checked before anything is loaded."""
    from nfm.cli.candidates import NORMALISATIONS, Request
    from nfm.cli.options import parse_options

    if given.normalisation not in (None, *NORMALISATIONS):
        raise UsageError(
            f"--normalisation: expected {', '.join(NORMALISATIONS)}, got {given.normalisation!r}"
        )
    options = parse_options(given.option)
    return Request(source, given.data, given.data_root, given.model, options, given.normalisation)


def check_batch_size(given: argparse.Namespace) -> int:
    """Return --batch-size, or refuse it."""
    if given.batch_size < 1:
        raise UsageError(f"--batch-size: expected a whole number from 1 up, got {given.batch_size}")
    return int(given.batch_size)
