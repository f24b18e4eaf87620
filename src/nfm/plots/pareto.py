"""Rows of a study -> a picture: clean against robust accuracy of every trial, and the front."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from nfm.errors import UsageError
from nfm.plots.canvas import FAINT, GRID, INK, PALETTE, new_figure, quieten
from nfm.results import Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Points = list[Row]


def pareto_front(rows: Iterable[Row], *, title: str) -> Figure:
    """Return a figure of clean against robust accuracy (%): trials, the front, trial 0, the reference.

    A dropped trial stands where it was when it was dropped. Trials without numbers are left out.
    """
    rows = [row for row in rows if row["clean"] is not None]
    if not rows:
        raise UsageError("expected rows of at least one trial with its accuracies, got none")
    figure = new_figure(width=6.4, height=4.8)
    axes = figure.subplots()
    trials = [row for row in rows if row["kind"] == "trial"]
    _scatter(axes, [row for row in trials if row["state"] == "pruned"], "x", FAINT, 26, "dropped early")
    whole = [row for row in trials if row["state"] == "complete" and not row["front"]]
    _scatter(axes, whole, "o", PALETTE[5], 30, "trial")
    _draw_front(axes, [row for row in trials if row["front"]])
    _ring(axes, [row for row in trials if row["trial"] == 0])
    for row in rows:
        if row["kind"] == "reference":
            _scatter(axes, [row], "D", PALETTE[6], 52, f"{row['scheme']}, for reference")
    _finish(figure, axes, rows, title)
    return figure


def _scatter(axes: Axes, rows: Points, marker: str, colour: str, size: float, label: str) -> None:
    if rows:
        axes.scatter(
            *_places(rows), marker=marker, color=colour, s=size, linewidths=1.2, label=label, zorder=3
        )


def _draw_front(axes: Axes, rows: Points) -> None:
    """Draw the front as stairs: all below and left of them is beaten by a trial; number its corners."""
    if not rows:
        return
    corners = sorted({(row["robust"], row["clean"]): row for row in reversed(rows)}.items())
    x, y = ([100 * place[axis] for place, _ in corners] for axis in (0, 1))
    axes.step(x, y, where="pre", color=PALETTE[1], linewidth=1.6, zorder=2)
    axes.scatter(x, y, color=PALETTE[1], s=46, zorder=4, label="Pareto front, by trial")
    for left, up, (_, row) in zip(x, y, corners, strict=True):
        axes.annotate(
            str(row["trial"]), (left, up), xytext=(5, 4), textcoords="offset points", fontsize=8, color=INK
        )


def _ring(axes: Axes, rows: Points) -> None:
    if rows:
        axes.scatter(
            *_places(rows), s=150, facecolors="none", edgecolors=PALETTE[0], linewidths=1.8, zorder=5,
            label="trial 0: the recipe's own setting",
        )  # fmt: skip


def _places(rows: Points) -> tuple[list[float], list[float]]:
    return [100 * row["robust"] for row in rows], [100 * row["clean"] for row in rows]


def _finish(figure: Figure, axes: Axes, rows: Points, title: str) -> None:
    quieten(axes)
    axes.grid(axis="x", color=GRID, linewidth=0.8)
    axes.margins(0.08)
    axes.set_xlabel("mean accuracy under perturbation (%)", color=INK)
    axes.set_ylabel("clean accuracy (%)", color=INK)
    cells = [label for label in rows[0]["cells"] if not label.startswith("clean")]
    axes.set_title(
        f"{rows[0]['n']} validation examples; perturbed by {_together(cells)}",
        fontsize=8.5,
        color=FAINT,
        loc="left",
    )
    figure.suptitle(title, fontsize=11, color=INK, x=0.01, ha="left")
    figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=8.5)


def _together(labels: list[str]) -> str:
    """Return labels with the levels of one perturbation put together.

    >>> _together(["white_noise 0.1", "white_noise 0.2", "fog 3"])
    'white noise 0.1, 0.2; fog 3'
    """
    levels: dict[str, list[str]] = {}
    for label in labels:
        name, _, level = label.rpartition(" ")
        levels.setdefault(name.replace("_", " "), []).append(level)
    return "; ".join(f"{name} {', '.join(found)}" for name, found in levels.items())
