"""Training curves: the mean over the seeds of a scheme, with the range between the lowest and the highest."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from nfm.plots.training import PANELS
from nfm.report.axes import round_axis
from nfm.report.chart import Panel, Point, Series, panels
from nfm.report.derived import spread_out
from nfm.report.markup import Markup
from nfm.results import Row

DOTS = 60  # places under the pointer a line, however many epochs


def training_curves(rows: Sequence[Row], schemes: Sequence[str]) -> Markup | None:
    """Return loss and accuracy against the epoch, one panel a measure."""
    made = [_panel(rows, name, schemes) for name in PANELS if any(row.get(name) is not None for row in rows)]
    return panels(made) if made else None


def _panel(rows: Sequence[Row], name: str, schemes: Sequence[str]) -> Panel:
    label, factor = PANELS[name]
    values: dict[str, dict[int, list[float]]] = {}
    for row in rows:
        if row.get(name) is not None:
            values.setdefault(row["scheme"], {}).setdefault(row["epoch"] + 1, []).append(factor * row[name])
    series = tuple(Series(schemes.index(scheme), _points(epochs)) for scheme, epochs in values.items())
    points = [point for one in series for point in one.points]
    ends: Any = {"high": 100.0} if factor == 100 else {"low": 0.0}
    x = round_axis([point.x for point in points], "epoch", low=0.0, high=max(point.x for point in points))
    return Panel(label, x, round_axis([point.y for point in points], "", **ends), series)


def _points(epochs: dict[int, list[float]]) -> tuple[Point, ...]:
    shown = set(spread_out(len(epochs), DOTS))
    return tuple(
        Point(epoch, fmean(found), f"epoch {epoch}", f"{fmean(found):.4g}", min(found), max(found), dot=False)
        for place, (epoch, found) in enumerate(sorted(epochs.items()))
        if place in shown
    )
