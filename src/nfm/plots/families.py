"""Corruptions in a comparison: means by family and by severity."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import TypeVar

from nfm.data.cifar_c_files import CORRUPTIONS
from nfm.plots.comparison import Column, Comparison, Estimate

Key = TypeVar("Key", str, float)


def corruption_of(perturbation: str) -> str | None:
    """Return the published name of a corruption, or None for another perturbation.

    >>> corruption_of("fog(size=32)"), corruption_of("white_noise")
    ('fog', None)
    """
    name = perturbation.partition("(")[0]
    return name if name in CORRUPTIONS else None


def corruptions(comparison: Comparison) -> list[str]:
    """Return the perturbations that are corruptions, in the published order."""
    found = [(corruption_of(name), name) for name in comparison.perturbations()]
    return [full for short, full in sorted(found, key=_place) if short is not None]


def _place(pair: tuple[str | None, str]) -> tuple[int, str]:
    return (CORRUPTIONS.index(pair[0]) if pair[0] else -1), pair[1]


def mean_estimate(comparison: Comparison, scheme: str, columns: Sequence[Column]) -> Estimate | None:
    """Return the mean over columns; None where one is missing.

    The band's ends are the means of the cells' ends: wider than needed, for the cells are of the same examples.
    """
    cells = [comparison.cells.get((scheme, column)) for column in columns]
    known = [cell for cell in cells if cell is not None]
    if not known or len(known) < len(cells):
        return None
    mean, low, high = (fmean(getattr(cell, end) for cell in known) for end in ("mean", "lo", "hi"))
    seeds = min(cell.seeds for cell in known)
    return Estimate(mean, low, high, None if seeds == 1 else high - mean, seeds)


def by_family(comparison: Comparison, scheme: str, severity: float | None = None) -> dict[str, Estimate]:
    """Return the mean over the severities of each corruption, or what it is at one."""
    groups = {
        name: [column for column in comparison.columns if column[0] == name and severity in (None, column[1])]
        for name in corruptions(comparison)
    }
    return _means(comparison, scheme, groups)


def by_severity(comparison: Comparison, scheme: str) -> dict[float, Estimate]:
    """Return the mean over the corruptions at each severity."""
    names = corruptions(comparison)
    columns = [column for column in comparison.columns if column[0] in names]
    severities = sorted({level for _, level in columns})
    return _means(comparison, scheme, {level: [c for c in columns if c[1] == level] for level in severities})


def _means(comparison: Comparison, scheme: str, groups: dict[Key, list[Column]]) -> dict[Key, Estimate]:
    found = {key: mean_estimate(comparison, scheme, columns) for key, columns in groups.items()}
    return {key: estimate for key, estimate in found.items() if estimate is not None}
