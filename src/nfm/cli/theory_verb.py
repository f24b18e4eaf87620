"""``nfm theory RUN...``: what the paper's theory says of trained networks, in one table and one picture."""

from __future__ import annotations

import argparse
from pathlib import Path

from nfm.errors import EnvironmentProblem, UsageError

EPILOG = """Each run is measured at its kept checkpoints; a run trained with `nfm train --theory` also has rows of its
epochs. The regularisers are those of one yardstick (--noise, --alpha) for all runs, however each was trained."""


def add_arguments(options: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    options.epilog = EPILOG
    options.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="folders of runs (nfm train)")
    options.add_argument(
        "--sites", nargs="+", help="where to measure (default: the default sites of the first run)"
    )
    options.add_argument(
        "--examples", type=int, default=64, help="training examples to measure on (default 64)"
    )
    options.add_argument("--noise", default="0.4,0.2", metavar="ADD,MULT", help="levels of the yardstick")
    options.add_argument("--alpha", type=float, default=1.0, help="shape of the yardstick's weight")
    options.add_argument(
        "--steps", type=int, default=20, help="steps of the attack on the margin, 0 for none"
    )
    options.add_argument("--data-root", help="folder to look for the data in first")
    options.add_argument("--out", type=Path, help="the picture: .png, .svg or .pdf (default RUN/theory.png)")


def run(given: argparse.Namespace) -> None:
    """Measure every kept checkpoint of every run, and put all of them on the same axes."""
    from nfm.cli.theorising import measured_rows
    from nfm.core.noise import Noise
    from nfm.plots.canvas import check_suffix, save_figure
    from nfm.plots.theory import theory_curves, theory_table
    from nfm.results import to_line, write_atomically
    from nfm.theory.meter import Yardstick

    levels = _levels(given.noise)
    if given.examples < 2 or given.steps < 0:
        raise UsageError(
            f"--examples, --steps: expected 2 and 0 or more, got {given.examples} and {given.steps}"
        )
    out = check_suffix(given.out or given.runs[0] / "theory.png")
    how = Yardstick(noise=Noise(*levels), alpha=given.alpha, steps=given.steps)
    rows = measured_rows(
        given.runs, how, sites=given.sites, examples=given.examples, data_root=given.data_root
    )
    print(theory_table(rows))
    try:
        write_atomically(out.with_suffix(".jsonl"), "".join(map(to_line, rows)).encode())
        print(f"\nrows: {out.with_suffix('.jsonl')}\npicture: {save_figure(theory_curves(rows), out)}")
    except OSError as error:
        raise EnvironmentProblem(f"--out: cannot write {out}: {error.strerror or error}") from error


def _levels(text: str) -> tuple[float, float]:
    """Return the additive and the multiplicative level of ``0.4,0.2``."""
    try:
        add, mult = (float(word) for word in text.split(","))
    except ValueError:
        raise UsageError(f"--noise: expected two levels, ADD,MULT such as 0.4,0.2, got {text!r}") from None
    return add, mult
