"""Pictures and tables. Everything here reads rows and nothing else."""

from nfm.plots.canvas import save_figure
from nfm.plots.comparison import Comparison, Estimate, compare, compare_one
from nfm.plots.curves import curves
from nfm.plots.table import table

__all__ = ["Comparison", "Estimate", "compare", "compare_one", "curves", "save_figure", "table"]
