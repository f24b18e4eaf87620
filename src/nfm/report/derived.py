"""Sources -> rows of what is drawn: bins of confidence, shown examples, epochs; and which columns to draw."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from nfm.evaluate.calibration import expected_calibration_error, reliability_rows
from nfm.evaluate.outcomes import Outcomes
from nfm.plots.comparison import CLEAN, Column, Comparison
from nfm.report.sources import Source
from nfm.results import Row

# The paper's perturbations come first, at the levels of its CIFAR tables where all of them were measured.
FAVOURITES = {"white_noise": (0.1, 0.2, 0.3), "salt_and_pepper": (0.02, 0.04, 0.1)}


def members(comparison: Comparison, sources: Iterable[Source]) -> list[Source]:
    """Return the sources whose rows are in `comparison`."""
    about = comparison.about.items()
    return [
        source for source in sources if all(source.report.rows[0].get(name) == value for name, value in about)
    ]


def choose_columns(comparison: Comparison, *, perturbations: int, levels: int) -> list[Column]:
    """Return clean and, of a few perturbations, a few levels spread over those measured."""
    names = [name for name in FAVOURITES if name in comparison.perturbations()]
    names += [name for name in comparison.perturbations() if name not in names]
    chosen = [CLEAN] if CLEAN in comparison.columns else []
    for name in names[:perturbations]:
        known = [level for level in comparison.levels(name) if level > 0]
        papers = FAVOURITES.get(name, ())
        if len(papers) == levels and set(papers) <= set(known):
            chosen += [(name, level) for level in papers]
        else:
            chosen += [(name, known[place]) for place in spread_out(len(known), levels)]
    return chosen


def spread_out(count: int, wanted: int) -> list[int]:
    """Return up to `wanted` of `count` places, evenly spread, the last of them always.

    >>> spread_out(12, 3), spread_out(2, 3)
    ([3, 7, 11], [0, 1])
    """
    return sorted({round((step + 1) * count / min(wanted, count)) - 1 for step in range(min(wanted, count))})


def reliability(comparison: Comparison, sources: Sequence[Source], columns: Sequence[Column]) -> list[Row]:
    """Return the bins of each scheme in each column, all its seeds together, with their ECE."""
    rows = []
    for scheme in comparison.schemes:
        models = [source for source in members(comparison, sources) if source.label == scheme]
        for column in columns:
            found = [outcomes for source in models if (outcomes := _outcomes(source, column)) is not None]
            rows += [
                {"scheme": scheme, "perturbation": column[0], "level": column[1]} | row
                for row in _bins(found)
            ]
    return rows


def _bins(found: Sequence[Outcomes]) -> list[Row]:
    if not found or not all(np.isfinite(outcomes.confidence).all() for outcomes in found):
        return []
    confidence = np.concatenate([outcomes.confidence for outcomes in found])
    correct = np.concatenate([outcomes.correct for outcomes in found])
    ece = expected_calibration_error(confidence, correct)
    return [row | {"ece": ece} for row in reliability_rows(confidence, correct)]


def _outcomes(source: Source, column: Column) -> Outcomes | None:
    """Return the outcomes of a column; clean is level 0 of anything."""
    known = source.report.outcomes
    keys = [column] if column != CLEAN else [key for key in known if key[1] == 0]
    return next((known[key] for key in keys if key in known), None)


def shown_examples(comparison: Comparison, sources: Sequence[Source], columns: Sequence[Column]) -> list[Row]:
    """Return a row an example and column: its pixels (H, W, C), its class, and what each scheme takes it for.

    The first seed of a scheme stands for it.
    """
    rows: dict[tuple[int, Column], Row] = {}
    first = {source.label: source for source in reversed(members(comparison, sources))}
    for scheme in [name for name in comparison.schemes if name in first]:
        for column in columns:
            for row in _shown(first[scheme], column):
                held = rows.setdefault((row["id"], column), row | {"told": []})
                held["told"].append((scheme, row["taken_for"]))
    return list(rows.values())


def _shown(source: Source, column: Column) -> Iterator[Row]:
    strip = source.strip(column)
    if strip is None:
        return
    for place, example in enumerate(strip.ids.tolist()):
        yield {
            "id": example,
            "perturbation": column[0],
            "level": column[1],
            "pixels": strip.images[place].transpose(1, 2, 0),
            "truth": _name(source, int(strip.labels[place])),
            "taken_for": _name(source, int(strip.predicted[place])),
        }


def _name(source: Source, label: int) -> str:
    return source.classes[label] if label < len(source.classes) else str(label)


def epochs(sources: Iterable[Source]) -> list[Row]:
    """Return the rows of epochs of every run, each run once, under its label and seed."""
    runs = {source.home.resolve(): source for source in sources if source.epochs}
    return [
        row | {"scheme": source.label, "train_seed": source.train_seed}
        for source in runs.values()
        for row in source.epochs
    ]
