"""Summaries: what a claim says of the measures that only studies have, by the measure's name."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nfm.registry import Registry
from nfm.reproduce.study import Line
from nfm.results import Row

Summary = Callable[[Sequence[Line], Sequence[Row]], Row]
SUMMARIES: Registry[Summary] = Registry("summary")
