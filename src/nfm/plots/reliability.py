"""Rows of bins -> reliability diagrams: accuracy against confidence, one panel a column of the table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from nfm.errors import UsageError
from nfm.plots.canvas import FAINT, INK, new_figure, quieten
from nfm.plots.looks import Look, looks
from nfm.plots.table import show_column
from nfm.results import Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def reliability_diagrams(rows: Iterable[Row], *, title: str = "Reliability") -> Figure:
    """Return a figure of rows with scheme, perturbation, level, ece, n, confidence, accuracy, lo and hi of a bin.

    Above the diagonal a model is right more often than it says, below it is overconfident.
    """
    panels: dict[tuple[str, float], dict[str, list[Row]]] = {}
    rows = list(rows)
    for row in rows:
        column = ("clean", 0.0) if row["level"] == 0 else (row["perturbation"], row["level"])
        panels.setdefault(column, {}).setdefault(row["scheme"], []).append(row)
    if not panels:
        raise UsageError("expected rows of a reliability diagram, got none")
    figure = new_figure(width=0.6 + 3.6 * len(panels), height=4.2)
    row_of_axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axes, (column, schemes) in zip(row_of_axes, panels.items(), strict=True):
        _panel(axes, schemes, looks(rows))
        axes.set_title(show_column(column), fontsize=9.5, color=INK, loc="left")
    row_of_axes[0].set_ylabel("accuracy (%)", color=INK)
    figure.suptitle(title, fontsize=11, color=INK, x=0.01, ha="left")
    return figure


def _panel(axes: Axes, schemes: dict[str, list[Row]], drawn: Mapping[str, Look]) -> None:
    axes.plot([0, 100], [0, 100], color=FAINT, linewidth=1, linestyle=":")
    for scheme, bins in schemes.items():
        look = drawn[scheme]
        bins = sorted(bins, key=lambda row: row["confidence"])
        x, y, low, high = (
            [100 * row[name] for row in bins] for name in ("confidence", "accuracy", "lo", "hi")
        )
        ends = [[b - a for a, b in zip(low, y, strict=True)], [b - a for a, b in zip(y, high, strict=True)]]
        label = f"{scheme}: ECE {100 * bins[0]['ece']:.1f}"
        axes.errorbar(
            x, y, ends, color=look.colour, linestyle=look.stroke, linewidth=1, elinewidth=0.5, label=label
        )
        axes.scatter(
            x, y, _areas(bins), facecolors=look.face, edgecolors=look.colour, marker=look.marker, zorder=3
        )
    axes.set_xlabel("confidence (%)", color=INK)
    axes.set_xlim(0, 102)
    axes.set_ylim(0, 102)
    axes.legend(frameon=False, fontsize=8, loc="lower right")
    quieten(axes)


def _areas(bins: list[Row]) -> list[float]:
    """Return the area of each marker: it grows with the bin's share of the examples."""
    total = sum(row["n"] for row in bins)
    return [6 + 150 * row["n"] / total for row in bins]
