"""``nfm evaluate RUN``: how a trained network behaves under perturbation, in numbers that can be trusted."""

from __future__ import annotations

import argparse
from pathlib import Path

from nfm.cli.requesting import SOURCE, add_data_flags, add_weights_flags, check_batch_size, make_request

EPILOG = """suites: quick (clean, white noise, salt and pepper), paper (curves of both, PGD-7, six corruptions), full
(everything, strong attacks too: slow), and single ones: cifar, vit, imagenet, curves, attacks, ...
Measured cells are kept and not measured again: the same command goes on where it was stopped, and another
suite adds to what is there."""


def add_arguments(options: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    options.epilog = EPILOG
    options.add_argument("source", metavar="RUN", help=SOURCE)
    add_data_flags(options)
    options.add_argument("--suite", help="what to measure; see below (default quick)")
    options.add_argument(
        "--levels",
        nargs="+",
        default=[],
        metavar="NAME=L,L",
        help="these alone, or beside --suite: white_noise=0.1,0.2",
    )
    options.add_argument("--protocol", default="pixel", help="pixel (default) or authors; never in one table")
    options.add_argument("--seed", type=int, default=0, help="seed of the perturbations")
    options.add_argument("--batch-size", type=int, default=250, help="examples a batch; it changes no result")
    options.add_argument(
        "--limit", type=int, metavar="N", help="measure N examples of the test part (default: all)"
    )
    options.add_argument("--force", action="store_true", help="measure what is refused all the same, flagged")
    options.add_argument("--out", type=Path, help="where to keep it (default RUN/evaluation-PROTOCOL)")
    options.add_argument("--overwrite", action="store_true", help="measure anew what --out holds")
    options.add_argument("--name", help="what tables call it (default: the scheme of the run)")
    add_weights_flags(options)


def run(given: argparse.Namespace) -> None:
    """Measure every cell; cells measured before are not measured again."""
    from nfm.cli.candidates import find_candidate
    from nfm.cli.evaluating import Options, measure
    from nfm.cli.levels import parse_levels
    from nfm.evaluate.protocols import check_protocol
    from nfm.evaluate.suites import SUITES
    from nfm.plots.table import table
    from nfm.randomness import check_seed

    request = make_request(given, given.source)
    suite = given.suite or (None if given.levels else "quick")
    options = Options(
        suite=suite, more=parse_levels(given.levels) if given.levels else (), seed=check_seed(given.seed),
        protocol=check_protocol(given.protocol), batch_size=check_batch_size(given), force=given.force, out=given.out,
        overwrite=given.overwrite, name=given.name, limit=given.limit,
    )  # fmt: skip
    if suite:
        _ = SUITES[suite]  # a typo is told before anything is loaded
    report, out, left_out = measure(find_candidate(request), options)
    notes = [f"left out: {reason}" for reason in left_out]
    print("\n".join([table(report.rows), "", *notes, f"rows: {out}"]))
