"""``nfm plot RUN... --out figure.png``: measured runs as a picture."""

from __future__ import annotations

import argparse
from pathlib import Path

from nfm.errors import EnvironmentProblem

KINDS = "curves (default), corruptions, reliability, training or images"


def add_arguments(options: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    options.add_argument(
        "runs",
        nargs="+",
        type=Path,
        metavar="RUN",
        help="folders of measured runs (nfm evaluate), or of rows",
    )
    options.add_argument("--out", type=Path, required=True, help="the picture: .png, .svg or .pdf")
    options.add_argument("--kind", default="curves", help=KINDS)
    options.add_argument("--protocol", help="only evaluations under this protocol")
    options.add_argument("--data", help="only evaluations on this data set")


def run(given: argparse.Namespace) -> None:
    """Draw what may be compared; refuse what may not."""
    from nfm.plots.canvas import check_suffix, save_figure
    from nfm.report.figures import KINDS as DRAWN
    from nfm.report.sources import read_sources, select

    draw = DRAWN[given.kind]
    check_suffix(given.out)
    sources = select(read_sources(given.runs), protocol=given.protocol, data=given.data)
    figure = draw(sources)
    try:
        print(f"picture: {save_figure(figure, given.out)}")
    except OSError as error:
        raise EnvironmentProblem(f"--out: cannot write {given.out}: {error.strerror or error}") from error
