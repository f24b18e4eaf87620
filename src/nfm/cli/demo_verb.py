"""``nfm demo``: three schemes on real digits, under noise; one table, one picture, all runs and rows kept."""

from __future__ import annotations

import argparse
from pathlib import Path

from nfm.errors import UsageError

SCHEMES = ("erm", "manifold_mixup", "nfm")
WHITE, SALT = (0.1, 0.2, 0.3), (0.02, 0.05, 0.1)
EPOCHS = 60


def add_arguments(options: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    options.add_argument(
        "--out", type=Path, default=Path("runs/demo"), help="where runs, rows and the picture go"
    )
    options.add_argument("--seeds", type=int, default=4, help="training runs of each scheme (default 4)")
    options.add_argument("--epochs", type=int, default=EPOCHS, help=f"epochs of each run (default {EPOCHS})")


def run(given: argparse.Namespace) -> None:
    """Train, measure, show."""
    if given.seeds < 1 or given.epochs < 1:
        raise UsageError(f"expected at least 1 seed and 1 epoch, got {given.seeds} and {given.epochs}")
    from nfm.cli.demonstration import demonstrate

    demonstrate(
        given.out, schemes=SCHEMES, seeds=range(given.seeds), epochs=given.epochs, white=WHITE, salt=SALT
    )
