"""Rows -> robustness curves: accuracy against the level, one panel a perturbation, with bands."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from nfm.errors import UsageError
from nfm.plots.canvas import FAINT, INK, add_legend, new_figure, quieten
from nfm.plots.comparison import CLEAN, Comparison, compare_one
from nfm.plots.looks import Look, looks
from nfm.plots.names import axis_of
from nfm.plots.table import show_level
from nfm.results import Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_ACROSS = 3


def curves(rows: Iterable[Row], *, title: str | None = None) -> Figure:
    """Return a figure of accuracy (%) against level.

    The band is Wilson's interval for one seed and one standard deviation for several. Rows that may not be
    compared (another protocol, data set, examples or noise seed) are refused.
    """
    rows = list(rows)
    comparison = compare_one(rows)
    names = [name for name in comparison.perturbations() if len(comparison.levels(name)) > 1]
    if not names:
        raise UsageError("expected at least two levels of a perturbation to draw a curve, got fewer")
    across = min(len(names), MOST_ACROSS)
    lines = math.ceil(len(names) / across)
    figure = new_figure(width=0.6 + 4.1 * across, height=0.6 + 3.6 * lines)
    grid = figure.subplots(lines, across, sharey=True, squeeze=False)
    panels = list(grid.flat)
    for axes, name in zip(panels, names, strict=False):
        _panel(axes, comparison, name, looks(rows))
    for axes in panels[len(names) :]:
        axes.set_axis_off()
    for line in grid:
        line[0].set_ylabel("accuracy (%)", color=INK)
        for axes in line[1:]:
            axes.tick_params(axis="y", length=0)
    panels[0].set_title(f"band: {comparison.spread}", fontsize=8.5, color=FAINT, loc="left")
    figure.suptitle(title or comparison.title, fontsize=11, color=INK, x=0.01, ha="left")
    add_legend(figure, panels[0])
    return figure


def _panel(axes: Axes, comparison: Comparison, name: str, drawn: Mapping[str, Look]) -> None:
    for scheme in comparison.schemes:
        look = drawn[scheme]
        points = [
            (level, comparison.cells[scheme, column])
            for level in comparison.levels(name)
            if (scheme, column := (name, level) if level else CLEAN) in comparison.cells
        ]
        x = [level for level, _ in points]
        low, high, mean = ([100 * getattr(e, end) for _, e in points] for end in ("lo", "hi", "mean"))
        axes.fill_between(x, low, high, color=look.colour, alpha=0.13, linewidth=0)
        axes.plot(x, mean, markersize=4.5, linewidth=1.8, label=scheme, **look.line)
    axes.set_xlabel(axis_of(name), color=INK)
    levels = comparison.levels(name)
    if all("/" in show_level(level) for level in levels if level):  # an eps in 255ths
        axes.set_xticks(levels, [show_level(level) for level in levels])
    quieten(axes)
