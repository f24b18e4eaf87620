"""The tables of a comparison: accuracies with their intervals, what is above or below the baseline, and flags."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from nfm.plots.comparison import CLEAN, Column, Comparison, Estimate
from nfm.plots.differences import LEGEND, show_difference
from nfm.plots.names import name_of
from nfm.plots.table import order, show_level
from nfm.report.chart import label
from nfm.report.compared import show_spot
from nfm.report.derived import choose_columns
from nfm.report.markup import Markup, tag
from nfm.report.pairs import SURE, Pairing
from nfm.results import Row

Units = dict[Column, str]


def summary(comparison: Comparison, pairing: Pairing, rows: Sequence[Row], schemes: Sequence[str]) -> Markup:
    """Return a table of chosen columns, one of all columns to unfold, and what the marks mean."""
    chosen = [
        column
        for column in order(comparison)
        if column in choose_columns(comparison, perturbations=9, levels=3)
    ]
    units = level_units(rows)
    told = [
        "Accuracy in %, beneath it the 95% interval of one model or the standard deviation over seeds. "
        "The best of a column is bold."
    ]
    if pairing.cells:
        told.append(f" Last, points above {pairing.baseline}, paired by example (McNemar): {LEGEND}.")
    everything = None
    if len(chosen) < len(comparison.columns):
        whole = accuracy_table(comparison, pairing, order(comparison), units, schemes)
        everything = tag("details", tag("summary", f"all {len(comparison.columns)} columns"), whole)
    return tag(
        "div",
        tag("p", told, class_="hint"),
        accuracy_table(comparison, pairing, chosen, units, schemes),
        everything,
    )


def accuracy_table(
    comparison: Comparison, pairing: Pairing, columns: Sequence[Column], units: Units, schemes: Sequence[str]
) -> Markup:
    """Return one table: a line a scheme, a column a perturbation and level."""
    tests = {(row["scheme"], (row["perturbation"], row["level"])): row for row in pairing.cells}
    best = {column: _best(comparison, column) for column in columns}
    lines = []
    for scheme in comparison.schemes:
        place = schemes.index(scheme)
        found = [(comparison.cells.get((scheme, column)), tests.get((scheme, column))) for column in columns]
        cells = [_cell(*pair, best[column]) for pair, column in zip(found, columns, strict=True)]
        lines.append(tag("tr", tag("th", label(place, scheme)), cells, data_scheme=place))
    table = tag("table", tag("thead", _heads(columns, units)), tag("tbody", lines))
    return tag("div", table, class_="scroll")


def _heads(columns: Sequence[Column], units: Units) -> list[Markup]:
    """Return two lines: the perturbations, and their levels."""
    names = list(dict.fromkeys(name for name, _ in columns))
    widths = [sum(name == other for other, _ in columns) for name in names]
    groups = [
        tag("th", name_of(name), colspan=width, class_="group")
        for name, width in zip(names, widths, strict=True)
    ]
    levels = [
        tag("th", "" if column == CLEAN else show_level(column[1]), tag("small", units.get(column, "")))
        for column in columns
    ]
    return [tag("tr", tag("th", "scheme"), groups), tag("tr", tag("th", ""), levels)]


def _best(comparison: Comparison, column: Column) -> float:
    known = [comparison.cells.get((scheme, column)) for scheme in comparison.schemes]
    return max((estimate.mean for estimate in known if estimate is not None), default=0.0)


def _cell(estimate: Estimate | None, test: Row | None, best: float) -> Markup:
    if estimate is None:
        return tag("td", "–")
    mean = f"{100 * estimate.mean:.1f}"
    band = (
        f"{100 * estimate.lo:.1f}–{100 * estimate.hi:.1f}"
        if estimate.std is None
        else f"± {100 * estimate.std:.1f}"
    )
    return tag("td", tag("b", mean) if estimate.mean == best else mean, tag("small", band), _difference(test))


def _difference(test: Row | None) -> Markup | None:
    if test is None:
        return None
    sure = test["p_holm"] < SURE
    direction = ("up" if test["difference"] > 0 else "down") if sure else "even"
    return tag("small", show_difference(test), class_=direction)


def level_units(rows: Iterable[Row]) -> Units:
    """Return each level in the other unit, where all rows agree on it: pixels and normalised units."""
    told: dict[Column, set[str]] = {}
    for row in rows:
        pixel, normalised = row.get("level_pixel"), row.get("level_normalised")
        if row["level"] == 0 or pixel is None or normalised is None or pixel == normalised:
            continue
        other = f"{pixel:.3g} px" if row["level"] == normalised else f"{normalised:.3g} norm."
        told.setdefault((row["perturbation"], row["level"]), set()).add(other)
    return {column: next(iter(units)) for column, units in told.items() if len(units) == 1}


def warnings(comparison: Comparison, pairing: Pairing) -> Markup | None:
    """Return what must be known before the numbers are believed: flags, few seeds, blind spots."""
    spots = [
        tag(
            "li",
            tag("b", "blind spots of ", scheme),
            f" (surely below {pairing.baseline}): ",
            ", ".join(map(show_spot, found)),
            class_="spot",
        )
        for scheme in comparison.schemes
        if (found := pairing.blind_spots(scheme))
    ]
    notes = [tag("li", note) for note in comparison.notes]
    if CLEAN not in comparison.columns:
        notes.append(tag("li", "the clean accuracy was not measured"))
    return tag("ul", spots, notes, class_="warnings") if spots or notes else None
