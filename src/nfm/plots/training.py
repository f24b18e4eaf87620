"""Rows of epochs -> how runs went: the loss, and the accuracy on the probe and the validation set."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nfm.errors import UsageError
from nfm.plots.canvas import INK, PALETTE, new_figure, quieten, save_figure
from nfm.plots.looks import looks
from nfm.results import Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LOSSES = {"train_loss": "training (mixed)", "validation_loss": "validation"}
ACCURACIES = {
    "train_accuracy_weighted": "training (mixed, weighted)",
    "probe_accuracy": "training probe (clean)",
    "validation_accuracy": "validation",
}
Panels = Mapping[str, tuple[str, int]]  # what a row calls a measure -> its title, and a factor

PANELS: Panels = {
    "train_loss": ("training loss (mixed)", 1),
    "validation_loss": ("validation loss", 1),
    "probe_accuracy": ("accuracy on clean training examples (%)", 100),
    "validation_accuracy": ("validation accuracy (%)", 100),
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


def training_comparison(rows: Iterable[Row], *, title: str = "Training", panels: Panels = PANELS) -> Figure:
    """Return a figure of rows of epochs with scheme and train_seed: one panel a measure, one line a run."""
    rows = list(rows)
    runs: dict[tuple[str, Any], list[Row]] = {}
    for row in rows:
        runs.setdefault((row["scheme"], row.get("train_seed")), []).append(row)
    names = [name for name in panels if any(name in row for run in runs.values() for row in run)]
    if not names:
        raise UsageError("expected rows of epochs, got none; nfm train keeps them beside its checkpoints")
    drawn = looks(rows)
    figure = new_figure(width=0.6 + 3.4 * len(names), height=4.0)
    for axes, name in zip(figure.subplots(1, len(names), squeeze=False)[0], names, strict=True):
        label, factor = panels[name]
        for (scheme, _), run in runs.items():
            points = [(row["epoch"] + 1, factor * row[name]) for row in run if name in row]
            axes.plot(
                *zip(*points, strict=True), linewidth=1.4, label=scheme, **drawn[scheme].line | {"marker": ""}
            )
        axes.set_title(label, fontsize=9, color=INK, loc="left")
        axes.set_xlabel("epoch", color=INK)
        quieten(axes)
    handles = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    figure.suptitle(title, fontsize=11, color=INK, x=0.01, ha="left")
    figure.legend(
        handles.values(), handles, loc="outside lower center", ncols=min(len(handles), 4), frameon=False
    )
    return figure
