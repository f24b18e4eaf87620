"""Rows of boundaries -> what a classifier of the plane learned: one panel a scheme, with a circle to compare."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from nfm.errors import UsageError
from nfm.plots.canvas import FAINT, INK, PALETTE, new_figure
from nfm.results import Row

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ACROSS = 4
NO_BOUNDARY = "collapsed:\nthe same class everywhere"
BOUNDARY: dict[str, Any] = {"color": INK, "linewidth": 1.4}
BEST: dict[str, Any] = {"color": FAINT, "linewidth": 1.1, "linestyle": "--"}
INNER, OUTER, OPACITY = "#B2182B", "#2166AC", 0.55  # of the shades: about the ends of RdBu_r


def boundaries(rows: Sequence[Row], *, radius: float, captions: dict[str, str], title: str) -> Figure:
    """Return a figure of rows with scheme, extent, side, inner (in %), points and labels of training and test.

    The first panel shows the data; in each other one the shades are the probability of the inner class, the line is the
    boundary, the dashed circle of `radius` the best possible one. `captions` stand above, by scheme.
    """
    if not rows:
        raise UsageError("expected rows of boundaries, got none")
    lines = math.ceil((len(rows) + 1) / ACROSS)
    figure = new_figure(width=2.6 * ACROSS, height=0.5 + 2.75 * lines)
    panels = list(figure.subplots(lines, ACROSS, squeeze=False).flat)
    _points(panels[0], rows[0]["points"], rows[0]["labels"], size=6)
    _points(panels[0], rows[0]["test_points"], rows[0]["test_labels"], size=9, hollow=True)
    train, test = len(rows[0]["points"]), len(rows[0]["test_points"])
    _finish(panels[0], rows[0], radius, f"data: {train} training points\nand {test} test points (hollow)")
    for axes, row in zip(panels[1:], rows, strict=False):
        _shade(axes, row)
        _finish(axes, row, radius, captions.get(row["scheme"], str(row["scheme"])))
    for axes in panels[len(rows) + 1 :]:
        axes.set_axis_off()
    figure.suptitle(title, fontsize=11, color=INK, x=0.01, ha="left")
    figure.legend(handles=_legend(), loc="outside lower center", ncols=4, frameon=False)
    return figure


def _legend() -> list[Artist]:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    return [
        Line2D([], [], label="decision boundary", **BOUNDARY),
        Line2D([], [], label="best possible (Bayes) boundary", **BEST),
        Patch(label="inner class is likely", color=INNER, alpha=OPACITY),
        Patch(label="outer class is likely", color=OUTER, alpha=OPACITY),
    ]


def _shade(axes: Axes, row: Row) -> None:
    ticks = np.linspace(-row["extent"], row["extent"], row["side"])
    inner = np.array(row["inner"]).reshape(row["side"], row["side"]) / 100
    axes.contourf(ticks, ticks, inner, levels=np.linspace(0, 1, 11), cmap="RdBu_r", alpha=OPACITY)
    if inner.min() < 0.5 < inner.max():
        axes.contour(
            ticks, ticks, inner, levels=[0.5], colors=BOUNDARY["color"], linewidths=BOUNDARY["linewidth"]
        )
    else:
        box = {"facecolor": "white", "linewidth": 0, "alpha": 0.85, "pad": 3}
        axes.text(
            0.5, 0.04, NO_BOUNDARY, transform=axes.transAxes, ha="center", fontsize=8, color=INK, bbox=box
        )
    _points(axes, row["points"], row["labels"], size=2)


def _points(
    axes: Axes, places: Sequence[Sequence[float]], labels: Sequence[int], *, size: float, hollow: bool = False
) -> None:
    points, classes = np.array(places), np.array(labels)
    for label, colour in ((0, PALETTE[0]), (1, PALETTE[1])):
        x, y = points[classes == label].T
        faces, width = ("none", 0.5) if hollow else (colour, 0)
        axes.scatter(x, y, s=size, facecolors=faces, edgecolors=colour, linewidths=width)


def _finish(axes: Axes, row: Row, radius: float, caption: str) -> None:
    angle = np.linspace(0, 2 * np.pi, 200)
    axes.plot(radius * np.cos(angle), radius * np.sin(angle), **BEST)
    axes.set_xlim(-row["extent"], row["extent"])
    axes.set_ylim(-row["extent"], row["extent"])
    axes.set_aspect("equal")
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_title(caption, fontsize=8.5, color=INK)
