"""Rows of the theory's meter -> one picture of how several runs move, and a table of where they end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from nfm.errors import UsageError
from nfm.plots.canvas import FAINT, INK, MARKERS, PALETTE, new_figure, quieten
from nfm.plots.table import align
from nfm.results import Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PANELS = {
    "jacobian_norm": "Jacobian norm at the site",
    "r1": "R1",
    "r2_total": "R2 with noise",
    "eps_mix": "eps_mix at eps = 1",
    "margin": "median margin (l2, input units)",
}
COLUMNS = ("jacobian_norm", "r1", "r2", "r2_add", "r2_mult", "r3_total", "eps_mix", "margin", "error")
ALIKE = ("noise", "alpha", "n")  # what rows must share to stand on the same axes


def theory_curves(rows: Iterable[Row], *, title: str = "The theory, measured") -> Figure:
    """Return a figure with a panel a measure, a line a run: the mean over its sites against the epoch.

    Runs of which one and the same epoch was measured are drawn against the site instead.
    """
    runs = _runs(rows)
    epochs = {row["epoch"] for run in runs.values() for row in run}
    by = "site" if len(epochs) == 1 else "epoch"
    names = [
        name for name in PANELS if any(row.get(name) is not None for run in runs.values() for row in run)
    ]
    figure = new_figure(width=0.6 + 2.9 * len(names), height=3.8)
    for axes, name in zip(figure.subplots(1, len(names), squeeze=False)[0], names, strict=True):
        for place, (label, run) in enumerate(runs.items()):
            points = _means(run, name, by=by)
            axes.plot(
                [*points], [*points.values()], color=PALETTE[place % len(PALETTE)], linewidth=1.5, markersize=4,
                marker=MARKERS[place % len(MARKERS)], label=label,
            )  # fmt: skip
        axes.set_title(PANELS[name], fontsize=9, color=INK, loc="left")
        axes.set_xlabel("epoch" if by == "epoch" else f"site (epoch {min(epochs):g})", color=INK)
        if by == "epoch":
            axes.xaxis.get_major_locator().set_params(integer=True)
        quieten(axes)
    first = next(iter(runs.values()))[0]
    handles = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    figure.suptitle(title, fontsize=11, color=INK, x=0.01, ha="left")
    figure.text(
        0.99, 0.99, f"{first['n']} examples; {first['noise']}", fontsize=7, color=FAINT, ha="right", va="top"
    )
    figure.legend(
        handles.values(), handles, loc="outside lower center", ncols=min(len(handles), 4), frameon=False
    )
    return figure


def theory_table(rows: Iterable[Row]) -> str:
    """Return the last row of each run and site as a table."""
    lines: list[Sequence[str]] = [("run", "epoch", "site", *COLUMNS)]
    for label, run in _runs(rows).items():
        last = max(row["epoch"] for row in run)
        for row in (row for row in run if row["epoch"] == last):
            cells = ["-" if row.get(name) is None else f"{row[name]:.3g}" for name in COLUMNS]
            lines.append((label, f"{last:g}", row["site"], *cells))
    return align(lines)


def _runs(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Return rows by run, one an epoch and site (the newest), by epoch, sites as given; refuse what is not alike."""
    runs: dict[str, dict[tuple[float, str], Row]] = {}
    seen: set[tuple[object, ...]] = set()
    for row in rows:
        if row.get("kind") == "theory":
            runs.setdefault(row["run"], {})[row["epoch"], row["site"]] = row
            seen.add(tuple(row[name] for name in ALIKE))
    if not runs:
        raise UsageError("expected rows of the theory's meter, got none; nfm theory RUN makes them")
    if len(seen) > 1:
        told = "; ".join(
            ", ".join(f"{name} {value}" for name, value in zip(ALIKE, one, strict=True)) for one in seen
        )
        raise UsageError(f"expected rows with the same {', '.join(ALIKE)} on the same axes, got {told}")
    return {name: [run[key] for key in sorted(run, key=lambda key: key[0])] for name, run in runs.items()}


def _means(run: Sequence[Row], name: str, *, by: str) -> dict[float | str, float]:
    """Return the mean of a measure at each epoch or site, in the order of the rows."""
    found: dict[float | str, list[float]] = {}
    for row in run:
        if row.get(name) is not None:
            found.setdefault(row[by], []).append(row[name])
    return {place: sum(values) / len(values) for place, values in found.items()}
