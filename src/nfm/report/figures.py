"""Sources -> figures by kind: what ``nfm plot`` can draw."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from nfm.plots.comparison import compare_one
from nfm.plots.corruptions import corruption_bars
from nfm.plots.curves import curves
from nfm.plots.images import image_strips
from nfm.plots.reliability import reliability_diagrams
from nfm.plots.training import training_comparison
from nfm.registry import Registry
from nfm.report.derived import choose_columns, epochs, reliability, shown_examples
from nfm.report.sources import Source
from nfm.results import Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Sources = Sequence[Source]
KINDS: Registry[Callable[[Sources], Figure]] = Registry("kind of figure")


def _rows(sources: Sources) -> list[Row]:
    return [row for source in sources for row in source.rows]


@KINDS.register("curves")
def draw_curves(sources: Sources) -> Figure:
    """Draw accuracy against level."""
    return curves(_rows(sources))


@KINDS.register("corruptions")
def draw_corruptions(sources: Sources) -> Figure:
    """Draw accuracy by corruption and by severity."""
    return corruption_bars(_rows(sources))


@KINDS.register("reliability")
def draw_reliability(sources: Sources) -> Figure:
    """Draw accuracy against confidence, clean and at the strongest levels."""
    comparison = compare_one(_rows(sources))
    columns = choose_columns(comparison, perturbations=2, levels=1)
    return reliability_diagrams(reliability(comparison, sources, columns), title=comparison.title)


@KINDS.register("training")
def draw_training(sources: Sources) -> Figure:
    """Draw loss and accuracy against the epoch."""
    return training_comparison(epochs(sources))


@KINDS.register("images")
def draw_images(sources: Sources) -> Figure:
    """Draw a few examples at each level, with what each scheme takes them for."""
    comparison = compare_one(_rows(sources))
    columns = choose_columns(comparison, perturbations=2, levels=4)
    rows = shown_examples(comparison, sources, columns)
    few = list(dict.fromkeys(row["id"] for row in rows))[:4]
    return image_strips([row for row in rows if row["id"] in few])
