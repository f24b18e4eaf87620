"""Rows -> robustness curves: accuracy against the level, one panel a perturbation, with bands."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nfm.errors import UsageError, need
from nfm.plots.comparison import CLEAN, Comparison, compare_one
from nfm.results import Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe & Ito 2008, "Color universal design": told apart with every common colour blindness.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = "osD^vPX"
INK, FAINT, GRID = "#333333", "#6E6E6E", "#DDDDDD"
NAMES = {"white_noise": "white noise  σ", "salt_and_pepper": "salt and pepper  γ"}
SUFFIXES = (".png", ".svg", ".pdf")


def curves(rows: Iterable[Row], *, title: str | None = None) -> Figure:
    """Return a figure of accuracy (%) against level.

    The band is Wilson's interval for one seed and one standard deviation for several. Rows that may not be
    compared (another protocol, data set, examples or noise seed) are refused.
    """
    comparison = compare_one(rows)
    names = [name for name in comparison.perturbations() if len(comparison.levels(name)) > 1]
    if not names:
        raise UsageError("expected at least two levels of a perturbation to draw a curve, got fewer")
    figure = _figure(width=0.6 + 4.1 * len(names), height=4.2)
    panels = figure.subplots(1, len(names), sharey=True, squeeze=False)[0]
    for axes, name in zip(panels, names, strict=True):
        _panel(axes, comparison, name)
    panels[0].set_ylabel("accuracy (%)", color=INK)
    panels[0].set_title(_band(comparison), fontsize=8.5, color=FAINT, loc="left")
    for axes in panels[1:]:
        axes.tick_params(axis="y", length=0)
    figure.suptitle(title or comparison.title, fontsize=11, color=INK, x=0.01, ha="left")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), 4), frameon=False)
    return figure


def save_figure(figure: Figure, path: Path | str) -> Path:
    """Write the figure as PNG, SVG or PDF, by the suffix of `path`; the same figure gives the same bytes."""
    path = Path(path)
    if path.suffix.lower() not in SUFFIXES:
        raise UsageError(f"expected a path that ends in {', '.join(SUFFIXES)}, got {path.name!r}")
    path.parent.mkdir(parents=True, exist_ok=True)
    dates = {".png": {}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
    import matplotlib

    with matplotlib.rc_context({"svg.hashsalt": "nfm"}):  # else the ids inside an SVG are random
        figure.savefig(path, dpi=160, metadata=dates[path.suffix.lower()])
    return path


def _figure(*, width: float, height: float) -> Any:
    """Return an empty figure that no global state of matplotlib knows."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except (ImportError, RuntimeError) as error:
        raise need("matplotlib", "plots", "drawing", error) from error
    figure = Figure(figsize=(width, height), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def _band(comparison: Comparison) -> str:
    """Return what the bands show."""
    seeds = sorted({estimate.seeds for estimate in comparison.cells.values()})
    several = "-".join(str(count) for count in dict.fromkeys((*seeds, seeds[-1])) if count > 1)
    told = ["95% interval of one model"] if seeds[0] == 1 else []
    return "band: " + ", ".join(told + ([f"one standard deviation over {several} seeds"] if several else []))


def _panel(axes: Axes, comparison: Comparison, name: str) -> None:
    for place, scheme in enumerate(comparison.schemes):
        colour, marker = PALETTE[place % len(PALETTE)], MARKERS[place % len(MARKERS)]
        points = [
            (level, comparison.cells[scheme, column])
            for level in comparison.levels(name)
            if (scheme, column := (name, level) if level else CLEAN) in comparison.cells
        ]
        x = [level for level, _ in points]
        low, high, mean = ([100 * getattr(e, end) for _, e in points] for end in ("lo", "hi", "mean"))
        axes.fill_between(x, low, high, color=colour, alpha=0.2, linewidth=0)
        axes.plot(x, mean, color=colour, marker=marker, markersize=4.5, linewidth=1.8, label=scheme)
    axes.set_xlabel(NAMES.get(name, name.replace("_", " ")), color=INK)
    _quiet(axes)


def _quiet(axes: Axes) -> None:
    """Leave only what carries the data: two spines, a light grid, dark grey ink."""
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(INK)
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=INK, labelsize=9)
    axes.margins(x=0.02)
