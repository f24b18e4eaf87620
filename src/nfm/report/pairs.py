"""Two schemes on the same examples: how much one is above the other, and whether that is more than luck.

A scheme is compared with the baseline column by column (McNemar's test) and family by family: a family is a
perturbation at all its levels, and its test counts on which examples one of the two is right more often.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nfm.errors import UsageError, did_you_mean
from nfm.evaluate.metrics import mcnemar
from nfm.evaluate.outcomes import Outcomes
from nfm.plots.comparison import CLEAN, Column, Comparison
from nfm.report.sources import Source
from nfm.results import Row

BASELINES = ("erm", "baseline")  # what a baseline is usually called
SURE = 0.05  # p-value, after Holm's correction over all tests of a table


@dataclass(frozen=True)
class Pairing:
    """The tests of one comparison: rows a column and rows a family, each with Holm's p-value."""

    baseline: str
    cells: tuple[Row, ...] = ()
    families: tuple[Row, ...] = ()

    def blind_spots(self, scheme: str) -> list[Row]:
        """Return where `scheme` is surely below the baseline: families, and levels of the other families."""
        families = [row for row in self.families if row["scheme"] == scheme and _below(row)]
        known = {row["perturbation"] for row in families}
        cells = [row for row in self.cells if row["scheme"] == scheme and _below(row)]
        return families + [row for row in cells if row["perturbation"] not in known]


def _below(row: Row) -> bool:
    return bool(row["difference"] < 0 and row["p_holm"] < SURE)


def choose_baseline(schemes: Sequence[str], asked: str | None = None) -> str:
    """Return the scheme that the others are compared with: the one asked for, erm, or the first."""
    if asked is None:
        return next((name for name in BASELINES if name in schemes), schemes[0])
    if asked not in schemes:
        known = dict.fromkeys(schemes)
        raise UsageError(f"no scheme {asked!r}; known: {', '.join(known)}{did_you_mean(asked, known)}")
    return asked


def pair(comparison: Comparison, sources: Iterable[Source], baseline: str) -> Pairing:
    """Return the paired tests of every scheme of `comparison` with `baseline`, where outcomes are known."""
    models = _models(comparison, sources)
    if baseline not in models:
        return Pairing(baseline)
    cells, families = [], []
    for scheme in comparison.schemes:
        if scheme == baseline or scheme not in models:
            continue
        matched = _matched(models[scheme], models[baseline])
        for column in comparison.columns:
            cells += _tested(scheme, matched, column[0], [column], level=column[1])
        for name in comparison.perturbations():
            columns = [column for column in comparison.columns if column[0] == name]
            families += _tested(scheme, matched, name, columns, level=None)
    return Pairing(baseline, tuple(holm(cells)), tuple(holm(families)))


def holm(rows: Sequence[Row]) -> list[Row]:
    """Return the rows with `p_holm`, the p-value corrected for the number of rows (Holm 1979).

    >>> [row["p_holm"] for row in holm([{"p_value": 0.02}, {"p_value": 0.01}, {"p_value": 0.5}])]
    [0.04, 0.03, 0.5]
    """
    order = sorted(range(len(rows)), key=lambda place: rows[place]["p_value"])
    corrected, highest = {}, 0.0
    for rank, place in enumerate(order):
        highest = max(highest, min(1.0, (len(rows) - rank) * rows[place]["p_value"]))
        corrected[place] = highest
    return [row | {"p_holm": corrected[place]} for place, row in enumerate(rows)]


Model = Mapping[Column, Outcomes]


def _models(comparison: Comparison, sources: Iterable[Source]) -> dict[str, dict[Any, Model]]:
    """Return the outcomes of this comparison's models: scheme -> training seed -> column -> outcomes."""
    models: dict[str, dict[Any, Model]] = {}
    for source in sources:
        outcomes = {
            CLEAN if row["level"] == 0 else (row["perturbation"], row["level"]): found
            for row in source.report.rows
            if all(row.get(name) == value for name, value in comparison.about.items())
            and (found := source.report.outcomes.get((row["perturbation"], row["level"]))) is not None
        }
        if outcomes:
            models.setdefault(source.label, {})[source.train_seed] = outcomes
    return models


def _matched(first: Mapping[Any, Model], second: Mapping[Any, Model]) -> list[tuple[Model, Model]]:
    """Return models to be compared: those of the same training seed, or, where there are none, in order."""
    common = [seed for seed in first if seed in second]
    if common:
        return [(first[seed], second[seed]) for seed in common]
    return list(zip(first.values(), second.values(), strict=False))


def _tested(
    scheme: str,
    matched: Iterable[tuple[Model, Model]],
    name: str,
    columns: Sequence[Column],
    *,
    level: float | None,
) -> list[Row]:
    """Return the row of one test, or none where a model lacks a column.

    Of several seeds the largest p-value counts: the difference must be there in each pair of models.
    """
    tests = [
        _test([first[column] for column in columns], [second[column] for column in columns])
        for first, second in matched
        if all(column in first and column in second for column in columns)
    ]
    if not tests:
        return []
    differences, p_values = zip(*tests, strict=True)
    row = {"scheme": scheme, "perturbation": name, "level": level, "difference": fmean(differences)}
    return [row | {"p_value": max(p_values), "pairs": len(tests)}]


def _test(first: Sequence[Outcomes], second: Sequence[Outcomes]) -> tuple[float, float]:
    """Return the difference in accuracy and the p-value of two models over some columns."""
    ours, theirs = _totals(first), _totals(second)
    test = mcnemar(ours > theirs, theirs > ours)  # a sign test; of a single column it is McNemar's
    return float((ours - theirs).mean() / len(first)), test.p_value


def _totals(outcomes: Sequence[Outcomes]) -> NDArray[np.int64]:
    """Return at how many of the columns each example is classified right, in the order of the ids."""
    return np.sum([_by_id(one) for one in outcomes], axis=0, dtype=np.int64)


def _by_id(outcomes: Outcomes) -> NDArray[np.bool_]:
    return outcomes.correct if outcomes.ids is None else outcomes.correct[np.argsort(outcomes.ids)]
