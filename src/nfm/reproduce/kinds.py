"""The measures that only studies have, with their summaries and tables, all of them registered: import from here."""

from nfm.reproduce import (  # noqa: F401 - each adds its own
    features,
    own_tables,
    taylor,
    toy,
    verdicts,
)
from nfm.reproduce.layout import show_table
from nfm.reproduce.measuring import MEASURES, check_measure, take

__all__ = ["MEASURES", "check_measure", "show_table", "take"]
