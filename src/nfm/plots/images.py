"""Rows of shown examples -> a strip: what a level looks like, and what each scheme took it for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from nfm.errors import UsageError
from nfm.plots.canvas import FAINT, INK, new_figure
from nfm.plots.table import show_column
from nfm.results import Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

RIGHT, WRONG = "#00694D", "#B33A00"


def image_strips(rows: Iterable[Row], *, title: str = "What the networks saw") -> Figure:
    """Return a figure of rows with id, perturbation, level, pixels (H, W, C), truth and told (a list of scheme, class).

    One line an example, one place a level.
    """
    cells = {(row["id"], (row["perturbation"], row["level"])): row for row in rows}
    if not cells:
        raise UsageError("expected examples to show, got none; nfm evaluate keeps some beside its rows")
    ids, columns = (list(dict.fromkeys(keys)) for keys in zip(*cells, strict=True))
    lines = max(len(row["told"]) for row in cells.values())
    figure = new_figure(width=0.4 + 1.25 * len(columns), height=0.6 + (1.15 + 0.17 * lines) * len(ids))
    grid = figure.subplots(len(ids), len(columns), squeeze=False)
    for axes_of_line, example in zip(grid, ids, strict=True):
        for axes, column in zip(axes_of_line, columns, strict=True):
            _place(axes, cells.get((example, column)))
    for axes, column in zip(grid[0], columns, strict=True):
        axes.set_title(show_column(column), fontsize=9, color=INK)
    figure.suptitle(title, fontsize=11, color=INK, x=0.01, ha="left")
    return figure


def _place(axes: Axes, row: Row | None) -> None:
    axes.set_axis_off()
    if row is None:
        return
    pixels = row["pixels"]
    axes.imshow(
        pixels[..., 0] if pixels.shape[2] == 1 else pixels,
        cmap="gray",
        vmin=0,
        vmax=255,
        interpolation="nearest",
    )
    told: Sequence[tuple[str, str]] = row["told"]
    for line, (scheme, name) in enumerate(told):
        colour = RIGHT if name == row["truth"] else WRONG
        axes.text(0.5, -0.04 - 0.15 * line, f"{scheme}: {name}", color=colour, ha="center", **_small(axes))
    box = {"facecolor": FAINT, "pad": 1, "linewidth": 0}
    axes.text(0.02, 0.98, str(row["truth"]), color="white", ha="left", bbox=box, **_small(axes))


def _small(axes: Axes) -> dict[str, Any]:
    return {"fontsize": 6.5, "va": "top", "transform": axes.transAxes}
