"""Rows -> bars: accuracy under each corruption, and the mean over corruptions at each severity."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nfm.errors import UsageError
from nfm.plots.canvas import FAINT, INK, add_legend, new_figure, quieten
from nfm.plots.comparison import Estimate, compare_one
from nfm.plots.families import by_family, by_severity, corruptions
from nfm.plots.looks import Look, looks
from nfm.plots.names import name_of
from nfm.results import Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def corruption_bars(
    rows: Iterable[Row], *, title: str | None = None, severity: float | None = None
) -> Figure:
    """Return a figure: left a group of bars a corruption, right one a severity, each the mean over the other.

    severity: the one that each corruption is shown at, instead of their mean.
    """
    rows = list(rows)
    comparison = compare_one(rows)
    names = corruptions(comparison)
    if not names:
        raise UsageError(
            "expected rows of corruptions, got none; measure them: nfm evaluate RUN --suite full"
        )
    schemes, drawn = comparison.schemes, looks(rows)
    figure = new_figure(width=3.5 + 0.6 * len(names) + 2.5, height=4.4)
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=[max(len(names), 3), 5])
    _bars(left, [by_family(comparison, scheme, severity) for scheme in schemes], names, drawn)
    levels = sorted({level for scheme in schemes for level in by_severity(comparison, scheme)})
    _bars(right, [by_severity(comparison, scheme) for scheme in schemes], levels, drawn)
    left.set_xticks(range(len(names)), [name_of(name) for name in names], rotation=40, ha="right")
    right.set_xticks(range(len(levels)), [f"{level:g}" for level in levels])
    left.set_ylabel("accuracy (%)", color=INK)
    right.set_xlabel("severity", color=INK)
    told = "mean over severities" if severity is None else f"at severity {severity:g}"
    told = f"whisker: {comparison.spread}\neach corruption, {told}"  # the longer line has room above the other panel
    left.set_title(told, fontsize=8.5, color=FAINT, loc="left")
    right.set_title("each severity, mean over corruptions", fontsize=8.5, color=FAINT, loc="left")
    figure.suptitle(title or comparison.title, fontsize=11, color=INK, x=0.01, ha="left")
    add_legend(figure, left)
    return figure


def _bars(
    axes: Axes, found: Sequence[Mapping[Any, Estimate]], keys: Sequence[Any], drawn: Mapping[str, Look]
) -> None:
    """Draw a group of bars a key, one bar a scheme, with whiskers."""
    width = 0.8 / len(drawn)
    for place, ((scheme, look), means) in enumerate(zip(drawn.items(), found, strict=True)):
        shown = [(index, means[key]) for index, key in enumerate(keys) if key in means]
        x = [index + (place - (len(drawn) - 1) / 2) * width for index, _ in shown]
        height = [100 * estimate.mean for _, estimate in shown]
        ends = [[100 * (e.mean - e.lo) for _, e in shown], [100 * (e.hi - e.mean) for _, e in shown]]
        axes.bar(x, height, width, yerr=ends, label=scheme, error_kw={"elinewidth": 0.8}, **look.bar)
    quieten(axes)
