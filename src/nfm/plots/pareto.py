"""Rows of a study -> a picture: clean against robust accuracy of every trial, and the front."""

from __future__ import annotations

import textwrap
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

    Where trials were dropped, a second panel shows all of them at the age at which that was decided. Trials without
    numbers are left out.
    """
    rows = [row for row in rows if row["clean"] is not None]
    whole = [row for row in rows if row["state"] == "complete"]
    if not whole:
        raise UsageError("expected rows of at least one complete trial with its accuracies, got none")
    dropped = any(row["state"] == "pruned" for row in rows)
    figure = new_figure(width=9.6 if dropped else 6.4, height=4.8)
    axes, *side = figure.subplots(1, 1 + dropped, squeeze=False, width_ratios=(1.6, 1)[: 1 + dropped])[0]
    _draw_end(axes, whole)
    if dropped:
        _draw_rung(side[0], [row for row in rows if row["kind"] == "trial" and row["rung"]])
    figure.suptitle(title, fontsize=11, color=INK, x=0.01, ha="left")
    figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=8.5)
    return figure


def _draw_end(axes: Axes, rows: Points) -> None:
    """Draw what was trained to its end."""
    trials = [row for row in rows if row["kind"] == "trial"]
    _scatter(axes, [row for row in trials if not row["front"]], "o", PALETTE[5], 30, "trial")
    _draw_front(axes, [row for row in trials if row["front"]])
    _ring(axes, [row for row in trials if row["trial"] == 0])
    for row in rows:
        if row["kind"] == "reference":
            _scatter(axes, [row], "D", PALETTE[6], 52, f"{row['scheme']}, for reference")
    _finish(axes, f"at the end, {_about(rows[0])}")


def _draw_rung(axes: Axes, trials: Points) -> None:
    """Draw all trials at the age at which some were dropped."""
    early = [row | row["rung"] for row in trials]
    _scatter(axes, [row for row in early if row["state"] != "pruned"], "o", PALETTE[5], 20, "")
    _scatter(axes, [row for row in early if row["state"] == "pruned"], "x", PALETTE[1], 28, "dropped early")
    _finish(axes, f"after epoch {early[0]['epochs']}")


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


def _finish(axes: Axes, when: str) -> None:
    quieten(axes)
    axes.grid(axis="x", color=GRID, linewidth=0.8)
    axes.margins(0.08)
    axes.set_xlabel("mean accuracy under perturbation (%)", color=INK)
    axes.set_ylabel("clean accuracy (%)", color=INK)
    axes.set_title(when, fontsize=8.5, color=FAINT, loc="left")


def _about(row: Row) -> str:
    cells = [label for label in row["cells"] if not label.startswith("clean")]
    return textwrap.fill(f"{row['n']} validation examples; {_together(cells)}", 76)


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
