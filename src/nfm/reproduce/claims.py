"""Claims: published numbers beside ours, made of rows alone, one JSON a study."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from nfm.reproduce.families import family_table
from nfm.reproduce.jobs import jobs_of
from nfm.reproduce.kinds import MEASURES
from nfm.reproduce.measuring import suite_of
from nfm.reproduce.records import EPOCH, MEASURING, RUN, Record, recorded_seeds
from nfm.reproduce.statistics import DIGITS, over_runs
from nfm.reproduce.study import SCALES, Line, Measure, Study
from nfm.reproduce.summaries import SUMMARIES
from nfm.reproduce.verdicts import answers_table, verdict_table
from nfm.results import Row, write_atomically

PUBLISHED_PROTOCOL = "authors"  # the only one that the paper's numbers may stand beside


def rows_of(study: Study, scale: str, claims: Path) -> list[Row]:
    """Return all rows of a study at a scale, each with its arm, what was published of it, and the seed of its training.

    Runs with more seeds than the study's own count, too.
    """
    found = []
    own = jobs_of(study, scale)
    names = [line.arm.name for line in study.lines(scale)]
    more = jobs_of(study, scale, seeds=sorted(recorded_seeds(claims, own)), arms=names)
    for job in {(job.line.arm.name, job.seed): job for job in (*own, *more)}.values():
        arm = job.line.arm
        tags = {
            "arm": arm.name, "scheme": arm.title, "of": arm.of, "train_seed": job.seed, "published": arm.published,
        }  # fmt: skip
        found += [{**row, **tags} for row in Record.of(claims, job).rows()]
    return found


def claim_of(study: Study, claims: Path) -> Row:
    """Return what a study claims, at each scale of which there are rows."""
    at = {scale: scale_claim(study, scale, rows_of(study, scale, claims)) for scale in SCALES}
    return {
        "id": study.id, "title": study.title, "source": study.source, "notes": list(study.notes),
        "scales": {scale: claim for scale, claim in at.items() if claim},
    }  # fmt: skip


def write_claim(study: Study, claims: Path) -> Row:
    """Write the claim of a study, if it has rows, the same bytes for the same rows, and return it."""
    claim = claim_of(study, claims)
    if not claim["scales"]:
        return claim
    text = json.dumps(claim, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    write_atomically(claims / f"{study.id}.json", text.encode())
    return claim


def scale_claim(study: Study, scale: str, rows: Sequence[Row]) -> Row:
    """Return the tables of one scale; nothing where there are no rows."""
    if not rows:
        return {}
    lines = study.lines(scale)
    measures = dict.fromkeys(measure for line in lines for measure in line.scale.measures)
    tables = [
        table
        for measure in measures
        for table in _tables(
            study, lines, measure, [row for row in rows if row.get("measure") == measure.key]
        )
    ]
    if "training" in study.figures:
        tables.append(training_table(lines, rows))
    made = sorted({row["made_by"].get("commit") or "unknown" for row in rows if row["kind"] == RUN})
    return {"tables": tables, "runs": _runs(rows), "commits": made, "training": _training(lines, rows)}


def _tables(study: Study, lines: Sequence[Line], measure: Measure, rows: list[Row]) -> list[Row]:
    """Return the tables that a study shows of one measure: one a data set."""
    if not rows:
        return []
    if measure.suite in MEASURES:
        return [{"measure": measure.key, **SUMMARIES[measure.suite](lines, rows)}]
    if measure.suite not in study.tables:
        return []
    data = list(dict.fromkeys(row["data"] for row in rows))
    corrupted = measure.suite.startswith("corruptions")
    make = family_table if corrupted else partial(cell_table, calibration=study.calibration)
    tables = [make(lines, measure, [row for row in rows if row["data"] == name]) for name in data]
    return [told for table in tables for told in (table, *_verdict(study, table))]


def _verdict(study: Study, table: Row) -> list[Row]:
    """Return what a table of cells says of the study's champions and to its questions."""
    if table["kind"] != "cells":
        return []
    told = [verdict_table(table, study.champions)] if study.champions else []
    return [*told, answers_table(table, study.questions)] if study.questions else told


def cell_table(
    lines: Sequence[Line], measure: Measure, rows: Sequence[Row], *, calibration: bool = True
) -> Row:
    """Return a table of accuracies: one column a cell of the suite, published numbers where they may stand."""
    keys = [cell.key for cell in suite_of(measure.suite)]
    shown = {row["arm"] for row in rows}
    told = {line.arm.name for line in lines if _may_stand(line, measure, len(keys))}
    metrics = ("accuracy", "ece") if calibration else ("accuracy",)
    return {
        "kind": "cells", "measure": measure.key, "protocol": rows[0]["protocol"], "data": rows[0]["data"],
        "n": min(row["n"] for row in rows), "columns": [[name, level] for name, level in keys],
        "flags": sorted({flag for row in rows for flag in row.get("flags", ())}),
        "lines": [
            _line(line, keys, rows, metrics, published=line.arm.name in told)
            for line in lines
            if line.arm.name in shown | told
        ],
    }  # fmt: skip


def _may_stand(line: Line, measure: Measure, columns: int) -> bool:
    """Tell whether published numbers may stand in a table: of its protocol, and of its columns."""
    return measure.protocol == PUBLISHED_PROTOCOL and len(line.arm.published) == columns


def _lies_in(row: Row, name: str, level: float) -> bool:
    """Tell whether a row is of a column; rows are rounded (1/255 is no decimal)."""
    return row["perturbation"] == name and row["level"] == round(level, DIGITS)


def _line(
    line: Line,
    keys: Sequence[tuple[str, float]],
    rows: Sequence[Row],
    metrics: Sequence[str],
    *,
    published: bool,
) -> Row:
    arm = line.arm
    own = [row for row in rows if row["arm"] == arm.name]

    def numbers(metric: str) -> list[Row | None]:
        found = [
            over_runs([row for row in own if _lies_in(row, name, level)], metric) for name, level in keys
        ]
        return [number.as_row() if number else None for number in found]

    told: dict[str, Any] = {"arm": arm.name, "label": arm.title} | {name: numbers(name) for name in metrics}
    if published:
        told |= {"published": list(arm.published), "errors": arm.errors}
    return told


def training_table(lines: Sequence[Line], rows: Sequence[Row]) -> Row:
    """Return the errors of each arm after its last epoch, on training examples and on watched test images."""
    told = []
    for line in lines:
        own = [row for row in rows if row["kind"] == EPOCH and row["arm"] == line.arm.name]
        last = list({row["train_seed"]: row for row in own if "validation_accuracy" in row}.values())
        if last:
            told.append({
                "arm": line.arm.name, "label": line.arm.title, "epochs": last[0]["epoch"] + 1, "seeds": len(last),
                "train_error": round(1 - fmean(row["probe_accuracy"] for row in last), DIGITS),
                "test_error": round(1 - fmean(row["validation_accuracy"] for row in last), DIGITS),
            })  # fmt: skip
    return {"kind": "training", "lines": told}


def _runs(rows: Sequence[Row]) -> Row:
    """Return the seeds that each arm was trained with."""
    seeds: dict[str, list[int]] = {}
    for row in rows:
        if row["kind"] == RUN:
            seeds.setdefault(row["arm"], []).append(row["train_seed"])
    return seeds


def _training(lines: Sequence[Line], rows: Sequence[Row]) -> list[Row]:
    """Return how each arm fits its training set at the end: the mean accuracy on the clean probe, and minutes.

    Minutes of measuring are told of runs made since they are kept.
    """
    told = []
    for line in lines:
        own = [row for row in rows if row["arm"] == line.arm.name]
        last = {row["train_seed"]: row for row in own if row["kind"] == EPOCH}
        if last:
            probe = fmean(row["probe_accuracy"] for row in last.values())
            told.append({
                "arm": line.arm.name, "label": line.arm.title, "probe_accuracy": round(probe, DIGITS),
                "minutes": _minutes(own, RUN), "measuring_minutes": _minutes(own, MEASURING),
            })  # fmt: skip
    return told


def _minutes(rows: Sequence[Row], kind: str) -> list[float]:
    return [round(row["seconds"] / 60, 1) for row in rows if row["kind"] == kind and not row.get("resumed")]
