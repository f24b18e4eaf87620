"""Rows of paired tests -> how far each scheme is above the baseline, in points, with what is more than luck."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence

from nfm.errors import UsageError, did_you_mean
from nfm.plots.comparison import Column, Comparison
from nfm.plots.table import align, order, show_column
from nfm.results import Row

MARKS = ((0.001, "***"), (0.01, "**"), (0.05, "*"))
LEGEND = "* p < 0.05, ** p < 0.01, *** p < 0.001 after Holm's correction"


def differences(
    comparison: Comparison,
    tests: Sequence[Row],
    baseline: str,
    *,
    style: str = "text",
    width: int | None = None,
) -> str:
    """Return a table of points above `baseline`; `tests` has a row a scheme and column, with `p_holm`."""
    if style not in STYLES:
        raise UsageError(f"unknown style {style!r}; known: {', '.join(STYLES)}{did_you_mean(style, STYLES)}")
    if style == "csv":
        return _csv(tests, baseline)
    title = (
        f"points above {baseline} on the same examples; McNemar's paired test, {len(tests)} tests: {LEGEND}"
    )
    return STYLES[style](title, _lines(comparison, tests), width)


def show_difference(row: Row | None) -> str:
    """Return the points with their mark, as ``+3.8**``."""
    if row is None:
        return "–"
    mark = next((mark for limit, mark in MARKS if row["p_holm"] < limit), "")
    return f"{100 * row['difference']:+.1f}{mark}"


def _lines(comparison: Comparison, tests: Sequence[Row]) -> list[list[str]]:
    columns = order(comparison)
    found: dict[tuple[str, Column], Row] = {
        (row["scheme"], (row["perturbation"], row["level"])): row for row in tests
    }
    schemes = dict.fromkeys(row["scheme"] for row in tests)
    body = [[s, *(show_difference(found.get((s, column))) for column in columns)] for s in schemes]
    return [["scheme", *map(show_column, columns)], *body]


def _text(title: str, lines: list[list[str]], width: int | None) -> str:
    return f"{title}\n\n{align(lines, width=width)}"


def _markdown(title: str, lines: list[list[str]], _: int | None) -> str:
    cells = [[cell.replace("|", "\\|").replace("*", "\\*") for cell in line] for line in lines]
    top, *body = ("| " + " | ".join(line) + " |" for line in cells)
    rule = "|---|" + "---:|" * (len(lines[0]) - 1)
    return "\n".join([title.replace("*", "\\*"), "", top, rule, *body])


def _latex(title: str, lines: list[list[str]], _: int | None) -> str:
    """Return comments: the layout of the paper has no place for a second table."""
    return "\n".join(f"% {line}".rstrip() for line in _text(title, lines, None).splitlines())


def _csv(tests: Sequence[Row], baseline: str) -> str:
    out = io.StringIO()
    columns = ["scheme", "perturbation", "level", "difference", "p_value", "p_holm", "pairs"]
    writer = csv.DictWriter(out, ["baseline", *columns], lineterminator="\n")
    writer.writeheader()
    writer.writerows({"baseline": baseline, **{name: row[name] for name in columns}} for row in tests)
    return out.getvalue().rstrip("\n")


STYLES: dict[str, Callable[[str, list[list[str]], int | None], str]] = {
    "text": _text, "markdown": _markdown, "latex": _latex, "csv": _text,
}  # fmt: skip
