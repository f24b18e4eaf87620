"""Corruptions in a claim: the mean over severities of each family, and the families that got worse."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from nfm.evaluate.corruptions import AUTHORS, CORRUPTIONS, STANDARD
from nfm.reproduce.statistics import ENOUGH, deviation, over_runs
from nfm.reproduce.study import Line, Measure
from nfm.results import Row

GROUPS = {"15 standard": STANDARD, "all 19": CORRUPTIONS, "the paper's 6": AUTHORS}
SEVERITIES = (1, 2, 3, 4, 5)


def family_table(lines: Sequence[Line], measure: Measure, rows: Sequence[Row]) -> Row:
    """Return a table of mean accuracies by family and group of families; the first arm is what others are held to."""
    shown = [line for line in lines if any(row["arm"] == line.arm.name for row in rows)]
    means = {
        line.arm.name: family_means([row for row in rows if row["arm"] == line.arm.name]) for line in shown
    }
    baseline = means[shown[0].arm.name]
    return {
        "kind": "families", "measure": measure.key, "protocol": rows[0]["protocol"], "data": rows[0]["data"],
        "n": min(row["n"] for row in rows), "columns": list(baseline), "baseline": shown[0].arm.title,
        "sources": sorted({part for row in rows if "source" in row for part in row["source"].split(", ")}),
        "lines": [
            {
                "arm": line.arm.name, "label": line.arm.title, "accuracy": means[line.arm.name],
                "worse": _worse(means[line.arm.name], baseline),
            }
            for line in shown
        ],
    }  # fmt: skip


def family_means(rows: Sequence[Row]) -> Row:
    """Return the mean over severities of each group and family, and over the paper's six at each severity.

    Each run's mean is taken first, so that the deviation is that of runs.
    """
    groups = {
        name: [(family, severity) for family in families for severity in SEVERITIES]
        for name, families in GROUPS.items()
    }
    groups |= {
        f"the paper's 6, severity {severity}": [(family, severity) for family in AUTHORS]
        for severity in SEVERITIES
    }
    groups |= {family: [(family, severity) for severity in SEVERITIES] for family in CORRUPTIONS}
    found = {name: over_runs(list(_by_run(rows, set(cells)))) for name, cells in groups.items()}
    return {name: number.as_row() for name, number in found.items() if number}


def _by_run(rows: Sequence[Row], cells: set[tuple[str, int]]) -> list[Row]:
    """Return one row a training seed: the mean over `cells`; a run that lacks one is left out."""
    by_seed: dict[int, dict[tuple[str, int], Row]] = {}
    for row in rows:
        key = (row["perturbation"], int(row["level"]))
        if key in cells:
            by_seed.setdefault(row["train_seed"], {})[key] = row
    return [
        {
            "train_seed": seed,
            "n": min(row["n"] for row in own.values()),
            "accuracy": fmean(r["accuracy"] for r in own.values()),
        }
        for seed, own in by_seed.items()
        if len(own) == len(cells)
    ]


def _worse(own: Row, baseline: Row) -> list[str]:
    """Return the families below the baseline by more than the sum of both deviations (blind spots), seeds enough."""
    return [
        name
        for name in CORRUPTIONS
        if name in own and name in baseline and min(own[name]["seeds"], baseline[name]["seeds"]) >= ENOUGH
        and baseline[name]["mean"] - own[name]["mean"] > deviation(own[name]) + deviation(baseline[name])
    ]  # fmt: skip
