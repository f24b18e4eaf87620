"""The canvas of every figure: colours, an empty figure, quiet axes, and how it is saved."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from nfm.errors import UsageError, need

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe & Ito 2008, "Color universal design": told apart with every common colour blindness.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = "osD^vPX"
INK, FAINT, GRID = "#333333", "#6E6E6E", "#DDDDDD"
SUFFIXES = (".png", ".svg", ".pdf")


def new_figure(*, width: float, height: float) -> Any:
    """Return an empty figure that no global state of matplotlib knows."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except (ImportError, RuntimeError) as error:
        raise need("matplotlib", "plots", "drawing", error) from error
    figure = Figure(figsize=(width, height), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def save_figure(figure: Figure, path: Path | str) -> Path:
    """Write the figure as PNG, SVG or PDF, by the suffix of `path`; the same figure gives the same bytes."""
    path = check_suffix(Path(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    dates = {".png": {}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
    import matplotlib

    with matplotlib.rc_context({"svg.hashsalt": "nfm"}):  # else the ids inside an SVG are random
        figure.savefig(path, dpi=160, metadata=dates[path.suffix.lower()])
    return path


def check_suffix(path: Path) -> Path:
    """Return the path of a picture, or refuse its suffix."""
    if path.suffix.lower() not in SUFFIXES:
        raise UsageError(f"expected a path that ends in {', '.join(SUFFIXES)}, got {path.name!r}")
    return path


def quieten(axes: Axes) -> None:
    """Leave only what carries the data: two spines, a light grid, dark grey ink."""
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(INK)
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=INK, labelsize=9)
    axes.margins(x=0.02)


def add_legend(figure: Figure, axes: Axes) -> None:
    """Tell below the figure what is drawn in `axes`, in up to four columns, as many as fit."""
    handles, labels = axes.get_legend_handles_labels()
    for columns in range(min(len(labels), 4), 0, -1):
        legend = figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False)
        if columns == 1 or legend.get_window_extent().width <= figure.bbox.width:
            return
        legend.remove()
