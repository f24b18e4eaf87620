"""``nfm evaluate RUN``: how a trained network behaves under perturbation, in numbers that can be trusted."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path


def add_arguments(options: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    options.add_argument("run", type=Path, help="the folder of a run")
    options.add_argument("--data", help="another data set to measure on (default: the run's test part)")
    options.add_argument("--data-root", help="folder to look for the data in first")
    options.add_argument("--suite", default="cifar", help="cifar, vit, imagenet or curves (default cifar)")
    options.add_argument("--protocol", default="pixel", help="pixel (default) or authors")
    options.add_argument("--seed", type=int, default=0, help="seed of the perturbations")
    options.add_argument("--batch-size", type=int, default=250, help="examples a batch; it changes no result")
    options.add_argument("--force", action="store_true", help="measure a refused model all the same, flagged")
    options.add_argument(
        "--out", type=Path, help="where rows and outcomes go (default RUN/evaluation-PROTOCOL)"
    )


def run(given: argparse.Namespace) -> None:
    """Measure every cell of the suite; cells measured before are not measured again."""
    from nfm.config.runs import load_run
    from nfm.data import load
    from nfm.evaluate.sweep import evaluate
    from nfm.plots.table import table

    trained = load_run(given.run)
    config = trained.config
    data = load(
        given.data or config.data.name, root=given.data_root or config.data.root or None, validation=0
    )
    out = given.out or given.run / f"evaluation-{given.protocol}"
    report = evaluate(
        trained.model, data.test, given.suite, protocol=given.protocol, seed=given.seed,
        batch_size=given.batch_size, classes=len(trained.facts.classes), force=given.force, save_to=out,
        tags={"scheme": config.method.scheme, "train_seed": config.train.seed, "data": data.name},
        progress=_tell if sys.stderr.isatty() else None,
    )  # fmt: skip
    print(f"{table(report.rows)}\n\nrows: {out}")


def _tell(label: str, done: int, total: int) -> None:
    end = "\n" if done == total else ""
    print(f"\r{100 * done / total:3.0f}%  {label:<24}", end=end, file=sys.stderr, flush=True)
