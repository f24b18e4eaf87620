"""Rows of losses by epoch -> the NFM loss beside its approximation: one line of panels a scheme."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import TYPE_CHECKING

from nfm.errors import UsageError
from nfm.plots.canvas import INK, PALETTE, new_figure, quieten
from nfm.results import Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PARTS = ("train", "test")
LOSSES = {
    "nfm_loss": "NFM loss",
    "approximation": "its second-order approximation",
    "standard": "standard loss",
}


def loss_curves(rows: Sequence[Row], *, title: str) -> Figure:
    """Return a figure of rows with scheme, part (train, test), epoch and the losses; the mean over seeds."""
    schemes = list(dict.fromkeys(row["scheme"] for row in rows))
    if not schemes:
        raise UsageError("expected rows of losses, got none")
    figure = new_figure(width=8.8, height=0.6 + 3.2 * len(schemes))
    grid = figure.subplots(len(schemes), len(PARTS), squeeze=False)
    for line, scheme in zip(grid, schemes, strict=True):
        for axes, part in zip(line, PARTS, strict=True):
            _panel(axes, [row for row in rows if (row["scheme"], row["part"]) == (scheme, part)])
            axes.set_title(f"{scheme}: {part}", fontsize=9, color=INK, loc="left")
    handles, labels = grid[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    seeds = len({row.get("train_seed") for row in rows})
    figure.suptitle(f"{title}: mean over {seeds} seeds", fontsize=11, color=INK, x=0.01, ha="left")
    return figure


def _panel(axes: Axes, rows: Sequence[Row]) -> None:
    epochs = sorted({row["epoch"] for row in rows})
    for colour, (name, label) in zip(PALETTE, LOSSES.items(), strict=False):
        means = [fmean(row[name] for row in rows if row["epoch"] == epoch) for epoch in epochs]
        axes.plot(epochs, means, color=colour, linewidth=1.6, label=label)
    axes.set_xlabel("epoch", color=INK)
    axes.set_ylabel("loss", color=INK)
    quieten(axes)
