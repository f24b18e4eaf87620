"""Calibration of a comparison: reliability diagrams, calibration error against level, and a table."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from nfm.plots.comparison import CLEAN, Column, Comparison
from nfm.plots.names import name_of
from nfm.plots.table import show_column
from nfm.report.axes import Axis, round_axis
from nfm.report.chart import Panel, Point, Series, label, panels
from nfm.report.curves import drawn_perturbations, level_axis
from nfm.report.derived import choose_columns, reliability
from nfm.report.markup import Markup, tag
from nfm.report.sources import Source
from nfm.results import Row

PERCENT = Axis(
    0, 100, tuple((value, f"{value:g}") for value in (0.0, 20.0, 40.0, 60.0, 80.0, 100.0)), "confidence (%)"
)
ENOUGH = 10  # examples of a bin that is drawn
MEASURES = {
    "ece": ("ECE", 100), "ece_debiased": ("ECE, debiased", 100), "ece_signed": ("signed", 100), "nll": ("NLL", 1),
    "brier": ("Brier", 1), "temperature": ("temperature", 1), "ece_scaled": ("ECE at that temperature", 100),
    "nll_scaled": ("NLL at that temperature", 1),
}  # fmt: skip


def reliability_panels(
    comparison: Comparison, sources: Sequence[Source], schemes: Sequence[str]
) -> Markup | None:
    """Return accuracy against confidence, clean and at the strongest levels of the paper's perturbations."""
    columns = choose_columns(comparison, perturbations=2, levels=1)
    rows = reliability(comparison, sources, columns)
    found = [column for column in columns if any(_is_in(row, column) for row in rows)]
    return (
        panels([_diagram([row for row in rows if _is_in(row, column)], column, schemes) for column in found])
        if found
        else None
    )


def _is_in(row: Row, column: Column) -> bool:
    return bool((row["perturbation"], row["level"]) == column)


def _diagram(rows: Sequence[Row], column: Column, schemes: Sequence[str]) -> Panel:
    series = []
    for scheme in dict.fromkeys(row["scheme"] for row in rows):
        bins = [row for row in rows if row["scheme"] == scheme]
        total = sum(row["n"] for row in bins)
        points = [
            Point(
                100 * row["confidence"], 100 * row["accuracy"],
                f"confidence {100 * row['lower']:.0f} to {100 * row['upper']:.0f}%",
                f"{100 * row['accuracy']:.1f}% right of {row['n']}", size=0.5 + 1.5 * (row["n"] / total) ** 0.5,
            )
            for row in sorted(bins, key=lambda row: row["confidence"])
            if row["n"] >= ENOUGH
        ]  # fmt: skip
        series.append(Series(schemes.index(scheme), tuple(points)))
    accuracy = Axis(0, 100, PERCENT.ticks, "accuracy (%)")
    return Panel(show_column(column), PERCENT, accuracy, tuple(series), along="xy", diagonal=True)


def error_curves(comparison: Comparison, rows: Sequence[Row], schemes: Sequence[str]) -> Markup | None:
    """Return the calibration error against level; dashed, after the temperature that fits clean held-out examples."""
    names = drawn_perturbations(comparison)
    values = _means(rows, "ece") | {
        (*key, "scaled"): value for key, value in _means(rows, "ece_scaled").items()
    }
    if not names or not values:
        return None
    y = round_axis([0.0, *(100 * value for value in values.values())], "ECE (%)", low=0.0)
    return panels([_error_panel(comparison, name, values, y, schemes) for name in names])


def _error_panel(
    comparison: Comparison, name: str, values: dict[Any, float], y: Axis, schemes: Sequence[str]
) -> Panel:
    levels = comparison.levels(name)
    series = []
    for scheme in comparison.schemes:
        for suffix, told in (((), ""), (("scaled",), " after temperature")):
            points = [
                Point(level, 100 * values[key], show_column(column), f"ECE {100 * values[key]:.1f}%{told}")
                for level in levels
                for column in [(name, level) if level else CLEAN]
                if (key := (scheme, column, *suffix)) in values
            ]
            series.append(Series(schemes.index(scheme), tuple(points), dashed=bool(suffix)))
    return Panel(name_of(name), level_axis(levels), y, tuple(one for one in series if one.points))


def _means(rows: Sequence[Row], measure: str) -> dict[Any, float]:
    """Return the mean over seeds of one measure, by scheme and column."""
    found: dict[tuple[str, Column], dict[Any, float]] = {}
    for row in rows:
        column = CLEAN if row["level"] == 0 else (row["perturbation"], row["level"])
        if row.get(measure) is not None:
            found.setdefault((row["scheme"], column), {})[row.get("train_seed")] = row[measure]
    return {key: fmean(by_seed.values()) for key, by_seed in found.items()}


def calibration_table(comparison: Comparison, rows: Sequence[Row], schemes: Sequence[str]) -> Markup | None:
    """Return every measure of calibration, clean and at chosen levels."""
    columns = choose_columns(comparison, perturbations=2, levels=2)
    means = {measure: _means(rows, measure) for measure in MEASURES}
    shown = [measure for measure in MEASURES if means[measure]]
    if not shown:
        return None
    lines = [
        tag("tr", tag("th", label(schemes.index(scheme), scheme)), tag("td", show_column(column)),
            [tag("td", _number(means[measure].get((scheme, column)), MEASURES[measure][1])) for measure in shown],
            data_scheme=schemes.index(scheme))
        for column in columns
        for scheme in comparison.schemes
        if (scheme, column) in means[shown[0]]
    ]  # fmt: skip
    heads = tag(
        "tr", tag("th", "scheme"), tag("th", "at"), [tag("th", MEASURES[measure][0]) for measure in shown]
    )
    return tag("div", tag("table", tag("thead", heads), tag("tbody", lines)), class_="scroll")


def _number(value: float | None, factor: float) -> str:
    return "–" if value is None else f"{factor * value:.3g}"
