"""A few examples at each level, with what each scheme takes them for: so that people see what a level means."""

from __future__ import annotations

from collections.abc import Sequence

from nfm.plots.comparison import CLEAN, Column, Comparison
from nfm.plots.names import name_of
from nfm.plots.table import show_column
from nfm.report.chart import mark
from nfm.report.derived import choose_columns, shown_examples
from nfm.report.markup import Markup, tag
from nfm.report.png import data_address
from nfm.report.sources import Source
from nfm.results import Row

EXAMPLES, LEVELS, PERTURBATIONS = 4, 5, 24


def strips(comparison: Comparison, sources: Sequence[Source], schemes: Sequence[str]) -> Markup | None:
    """Return a strip a perturbation: a line an example, a place a level; the first two are unfolded."""
    columns = choose_columns(comparison, perturbations=PERTURBATIONS, levels=LEVELS)
    rows = shown_examples(comparison, sources, columns)
    made = []
    for name in comparison.perturbations():
        wanted = [
            column
            for column in columns
            if column in (CLEAN, *((name, level) for level in comparison.levels(name)))
        ]
        found = {(row["id"], (row["perturbation"], row["level"])): row for row in rows}
        if any((example, column) in found for example, column in found if column[0] == name):
            made.append((name, _strip(found, wanted, schemes)))
    folded = [
        tag("details", tag("summary", name_of(name)), strip, open=place < 2)
        for place, (name, strip) in enumerate(made)
    ]
    return tag("div", folded, class_="strips") if folded else None


def _strip(found: dict[tuple[int, Column], Row], columns: Sequence[Column], schemes: Sequence[str]) -> Markup:
    examples = list(dict.fromkeys(example for example, _ in found))[:EXAMPLES]
    heads = tag("tr", [tag("th", show_column(column)) for column in columns])
    lines = [
        tag("tr", [_place(found.get((example, column)), schemes) for column in columns])
        for example in examples
    ]
    return tag("div", tag("table", tag("thead", heads), tag("tbody", lines), class_="strip"), class_="scroll")


def _place(row: Row | None, schemes: Sequence[str]) -> Markup:
    if row is None:
        return tag("td", "–")
    place = show_column((row["perturbation"], row["level"]))
    picture = tag(
        "img", src=data_address(row["pixels"]), alt=f"{row['truth']} at {place}", width=64, height=64
    )
    told = [_told(schemes.index(scheme), name, right=name == row["truth"]) for scheme, name in row["told"]]
    return tag("td", picture, tag("small", row["truth"], class_="truth"), told)


def _told(scheme: int, name: str, *, right: bool) -> Markup:
    sign = "✓" if right else "✗"
    return tag(
        "small",
        mark(scheme),
        name,
        " ",
        sign,
        class_="told right" if right else "told wrong",
        data_scheme=scheme,
    )
