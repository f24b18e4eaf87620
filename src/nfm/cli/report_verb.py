"""``nfm report RUN... --out report.html``: measured runs as one page that loads nothing."""

from __future__ import annotations

import argparse
from pathlib import Path

from nfm.errors import EnvironmentProblem, UsageError


def add_arguments(options: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    options.add_argument(
        "runs",
        nargs="+",
        type=Path,
        metavar="RUN",
        help="folders of measured runs (nfm evaluate), or of rows",
    )
    options.add_argument(
        "--out", type=Path, default=Path("report.html"), help="the page (default report.html)"
    )
    options.add_argument("--title", default="Robustness report", help="its title")
    options.add_argument(
        "--baseline", help="the scheme the others are tested against (default erm, or the first)"
    )


def run(given: argparse.Namespace) -> None:
    """Write the page."""
    from nfm.report.page import make_page
    from nfm.report.sources import read_sources
    from nfm.results import write_atomically

    if given.out.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"--out: expected a path that ends in .html, got {given.out.name!r}")
    page = make_page(read_sources(given.runs), title=given.title, baseline=given.baseline)
    try:
        write_atomically(given.out, page.encode())
    except OSError as error:
        raise EnvironmentProblem(f"--out: cannot write {given.out}: {error.strerror or error}") from error
    print(f"page: {given.out} ({len(page.encode()) / 1e6:.1f} MB)")
