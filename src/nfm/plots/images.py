"""Rows of shown examples -> a strip: what a level looks like, and what each scheme took it for."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from nfm.errors import UsageError
from nfm.plots.canvas import FAINT, INK, new_figure
from nfm.plots.table import show_column
from nfm.results import Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

RIGHT, WRONG = "#00694D", "#B33A00"
LETTERS = 16  # of a head above one image


def image_strips(rows: Iterable[Row], *, title: str = "What the networks saw") -> Figure:
    """Return a figure of rows with id, perturbation, level, pixels (H, W, C), truth and told (a list of scheme, class).

    One line an example, one place a level.
    """
    cells = {(row["id"], (row["perturbation"], row["level"])): row for row in rows}
    if not cells:
        raise UsageError("expected examples to show, got none; nfm evaluate keeps some beside its rows")
    ids, columns = (list(dict.fromkeys(keys)) for keys in zip(*cells, strict=True))
    lines = max(len(row["told"]) for row in cells.values())
    figure = new_figure(width=0.4 + 1.25 * len(columns), height=0.7 + (1.3 + 0.14 * lines) * len(ids))
    grid = figure.subplots(
        2 * len(ids), len(columns), squeeze=False, height_ratios=[1.15, 0.14 * lines] * len(ids)
    )
    for place, example in enumerate(ids):
        for image, caption, column in zip(grid[2 * place], grid[2 * place + 1], columns, strict=True):
            _show(image, caption, cells.get((example, column)), lines)
    for axes, column in zip(grid[0], columns, strict=True):
        axes.set_title(textwrap.fill(show_column(column), LETTERS), fontsize=8.5, color=INK)
    figure.suptitle(title, fontsize=11, color=INK, x=0.01, ha="left")
    return figure


def _show(image: Axes, caption: Axes, row: Row | None, lines: int) -> None:
    """Draw an example with its class in the corner, and beneath it a line a scheme."""
    image.set_axis_off()
    caption.set_axis_off()
    if row is None:
        return
    pixels = row["pixels"][..., 0] if row["pixels"].shape[2] == 1 else row["pixels"]
    image.imshow(pixels, cmap="gray", vmin=0, vmax=255, interpolation="nearest")
    box = {"facecolor": FAINT, "pad": 1, "linewidth": 0}
    image.text(0.02, 0.98, str(row["truth"]), color="white", ha="left", bbox=box, **_small(image))
    for line, (scheme, name) in enumerate(row["told"]):
        colour = RIGHT if name == row["truth"] else WRONG
        caption.text(0.5, 1 - line / lines, f"{scheme}: {name}", color=colour, ha="center", **_small(caption))


def _small(axes: Axes) -> dict[str, Any]:
    return {"fontsize": 6.5, "va": "top", "transform": axes.transAxes}
