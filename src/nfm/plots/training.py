"""Rows of epochs -> how a run went: the loss, and the accuracy on the probe and the validation set."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from nfm.plots.canvas import INK, PALETTE, new_figure, quieten, save_figure
from nfm.results import Row

LOSSES = {"train_loss": "training (mixed)", "validation_loss": "validation"}
ACCURACIES = {
    "train_accuracy_weighted": "training (mixed, weighted)",
    "probe_accuracy": "training probe (clean)",
    "validation_accuracy": "validation",
}


def training_curves(epochs: Sequence[Row], path: Path) -> Path:
    """Draw the rows of epochs and write the figure to `path`."""
    figure = new_figure(width=8.8, height=3.8)
    left, right = figure.subplots(1, 2)
    for axes, names, label, factor in ((left, LOSSES, "loss", 1), (right, ACCURACIES, "accuracy (%)", 100)):
        for colour, (name, told) in zip(PALETTE, names.items(), strict=False):
            points = [(row["epoch"] + 1, factor * row[name]) for row in epochs if name in row]
            if points:
                axes.plot(*zip(*points, strict=True), color=colour, label=told, linewidth=1.6)
        axes.set_xlabel("epoch", color=INK)
        axes.set_ylabel(label, color=INK)
        axes.legend(frameon=False, fontsize=8)
        quieten(axes)
    return save_figure(figure, path)
