"""Pictures and tables. Everything here reads rows and nothing else."""

from nfm.plots.canvas import save_figure
from nfm.plots.certified import certified_curves, certified_table
from nfm.plots.comparison import Comparison, Estimate, compare, compare_one
from nfm.plots.corruptions import corruption_bars
from nfm.plots.curves import curves
from nfm.plots.differences import differences
from nfm.plots.images import image_strips
from nfm.plots.reliability import reliability_diagrams
from nfm.plots.table import table
from nfm.plots.training import training_comparison, training_curves

__all__ = [
    "Comparison",
    "Estimate",
    "certified_curves",
    "certified_table",
    "compare",
    "compare_one",
    "corruption_bars",
    "curves",
    "differences",
    "image_strips",
    "reliability_diagrams",
    "save_figure",
    "table",
    "training_comparison",
    "training_curves",
]
