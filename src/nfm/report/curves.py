"""Robustness curves and corruption bars of a comparison."""

from __future__ import annotations

from collections.abc import Sequence

from nfm.plots.comparison import CLEAN, Comparison
from nfm.plots.families import by_family, by_severity, corruption_of, corruptions
from nfm.plots.names import name_of
from nfm.plots.table import show_column, show_level
from nfm.report.axes import Axis, round_axis
from nfm.report.bars import bars
from nfm.report.chart import Panel, Point, Series, panels
from nfm.report.markup import Markup, tag


def level_axis(levels: Sequence[float]) -> Axis:
    """Return the axis of levels; those in 255ths are marked as such."""
    if all("/" in show_level(level) for level in levels if level):
        return Axis(min(levels), max(levels), tuple((level, show_level(level)) for level in levels), "level")
    return round_axis(levels, "level", low=min(levels), high=max(levels))


def drawn_perturbations(comparison: Comparison) -> list[str]:
    """Return the perturbations that make a curve; corruptions are drawn as bars."""
    return [
        name
        for name in comparison.perturbations()
        if len(comparison.levels(name)) > 2 and corruption_of(name) is None
    ]


def robustness_curves(comparison: Comparison, schemes: Sequence[str]) -> Markup | None:
    """Return accuracy against level, one panel a perturbation, with bands."""
    names = drawn_perturbations(comparison)
    lows = [100 * estimate.lo for (_, column), estimate in comparison.cells.items() if column[0] in names]
    if not names:
        return None
    y = round_axis([*lows, 100.0], "accuracy (%)", high=100.0)
    return panels([_panel(comparison, name, y, schemes) for name in names])


def _panel(comparison: Comparison, name: str, y: Axis, schemes: Sequence[str]) -> Panel:
    levels = comparison.levels(name)
    series = []
    for scheme in comparison.schemes:
        points = []
        for level in levels:
            column = (name, level) if level else CLEAN
            estimate = comparison.cells.get((scheme, column))
            if estimate is not None:
                mean, low, high = (100 * end for end in (estimate.mean, estimate.lo, estimate.hi))
                tip = f"{mean:.1f} [{low:.1f}, {high:.1f}]"
                points.append(Point(level, mean, show_column(column), tip, low, high))
        series.append(Series(schemes.index(scheme), tuple(points)))
    return Panel(name_of(name), level_axis(levels), y, tuple(series))


def corruption_bars(comparison: Comparison, schemes: Sequence[str]) -> Markup | None:
    """Return bars by severity and by family."""
    names = corruptions(comparison)
    if not names:
        return None
    places = [schemes.index(scheme) for scheme in comparison.schemes]
    severities = [by_severity(comparison, scheme) for scheme in comparison.schemes]
    levels = sorted({level for means in severities for level in means})
    families = [by_family(comparison, scheme) for scheme in comparison.schemes]
    drawn = [
        bars(
            "mean over corruptions, by severity",
            [(level, f"{level:g}") for level in levels],
            severities,
            places,
        ),
        bars(
            "mean over severities, by corruption", [(name, name_of(name)) for name in names], families, places
        ),
    ]
    return tag("div", drawn, class_="panels pair")
