"""Rows of evaluations -> dots: one line a scheme, one panel a cell, with the spread over seeds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from nfm.plots.canvas import FAINT, GRID, INK, PALETTE, new_figure, quieten
from nfm.plots.comparison import compare_one
from nfm.plots.table import order, show_column
from nfm.results import Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def accuracy_dots(rows: Iterable[Row], *, title: str) -> Figure:
    """Return a figure of accuracies in %: what many settings do to each cell, at a glance."""
    comparison = compare_one(rows)
    columns, schemes = order(comparison), comparison.schemes
    figure = new_figure(width=3.0 + 1.5 * len(columns), height=1.2 + 0.32 * len(schemes))
    panels = figure.subplots(1, len(columns), sharey=True, squeeze=False)[0]
    for axes, column in zip(panels, columns, strict=True):
        for place, scheme in enumerate(schemes):
            cell = comparison.cells.get((scheme, column))
            if cell is not None:
                ends = [[100 * (cell.mean - cell.lo)], [100 * (cell.hi - cell.mean)]]
                axes.errorbar(
                    [100 * cell.mean], [place], xerr=ends, fmt="o", color=PALETTE[0], markersize=4.5
                )
        axes.set_title(show_column(column), fontsize=9, color=INK)
        quieten(axes)
        axes.grid(axis="x", color=GRID, linewidth=0.6)
    panels[0].set_yticks(range(len(schemes)), schemes, fontsize=8)
    panels[0].invert_yaxis()
    figure.supxlabel(f"accuracy (%); bar: {comparison.spread}", fontsize=9, color=FAINT)
    figure.suptitle(title, fontsize=11, color=INK, x=0.01, ha="left")
    return figure
