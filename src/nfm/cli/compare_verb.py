"""``nfm compare RUN...``: measured runs in one table, as the paper has it, with paired tests."""

from __future__ import annotations

import argparse
from pathlib import Path

EPILOG = """Runs of one scheme that differ in nothing but their seed are shown as mean ± standard deviation. Runs under
another protocol, on other data or other examples get a table of their own: they are never ranked together."""


def add_arguments(options: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    options.epilog = EPILOG
    options.add_argument(
        "runs",
        nargs="+",
        type=Path,
        metavar="RUN",
        help="folders of measured runs (nfm evaluate), or of rows",
    )
    style = options.add_mutually_exclusive_group()
    for name in ("markdown", "latex", "csv"):
        style.add_argument(
            f"--{name}", dest="style", action="store_const", const=name, help=f"as {name}, not as text"
        )
    options.set_defaults(style="text")
    options.add_argument(
        "--baseline", help="the scheme the others are tested against (default erm, or the first)"
    )


def run(given: argparse.Namespace) -> None:
    """Print a table and its tests for everything that may be compared."""
    import shutil
    import sys

    from nfm.report.compared import compare_sources
    from nfm.report.sources import read_sources

    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    print(compare_sources(read_sources(given.runs), style=given.style, baseline=given.baseline, width=width))
