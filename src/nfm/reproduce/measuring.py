"""What is measured of a trained network: a suite of `nfm evaluate`, or one of the measures that only studies have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from nfm.config.schema import Config
from nfm.data.examples import DataSet, ExampleSet
from nfm.data.splits import balanced_subset
from nfm.errors import UsageError, did_you_mean
from nfm.evaluate.attack import parse_eps
from nfm.evaluate.bundles import EPS, RADII
from nfm.evaluate.noise import Clean
from nfm.evaluate.pgd import PGD7
from nfm.evaluate.protocols import check_protocol
from nfm.evaluate.suites import SUITES, Cell, Suite, cells
from nfm.evaluate.sweep import evaluate
from nfm.randomness import fold
from nfm.registry import Registry
from nfm.reproduce.study import Measure
from nfm.results import Row

SEED = 0  # of all perturbations: every network meets the same ones
KEPT = (
    "perturbation", "level", "level_pixel", "level_normalised", "level_255", "protocol", "n", "ids", "seed",
    "accuracy", "lo", "hi", "ece", "ece_debiased", "ece_signed", "nll", "brier", "ece_scaled", "nll_scaled",
    "temperature", "flags", "data", "network",
)  # fmt: skip


@dataclass(frozen=True)
class Trained:
    """A trained network, its data and the settings it was made by; `folder` keeps what is worth resuming."""

    model: nn.Module
    data: DataSet
    config: Config
    folder: Path
    held_out: ExampleSet | None = None  # examples it never saw, for its temperature


Measurer = Callable[[Trained, Measure], list[Row]]
MEASURES: Registry[Measurer] = Registry("measure")

# The paper tells neither eps nor their unit; ours are in pixels of [0, 1].
PGD7_CURVES: Suite = (
    Cell(Clean(), 0.0),
    *cells(PGD7("l2"), RADII),
    *cells(PGD7(), [parse_eps(size) for size in EPS]),
)
OWN_SUITES = {"pgd7-curves": PGD7_CURVES}


def suite_of(name: str) -> Suite:
    """Return the cells of a suite, by its name here or in `nfm evaluate`."""
    return OWN_SUITES[name] if name in OWN_SUITES else SUITES[name]


def check_measure(measure: Measure) -> None:
    """Refuse a measure that nobody knows."""
    known = (*MEASURES, *OWN_SUITES, *SUITES)
    if measure.suite not in known:
        raise UsageError(
            f"unknown suite {measure.suite!r}; known: {', '.join(known)}{did_you_mean(measure.suite, known)}"
        )
    check_protocol(measure.protocol)
    if measure.images < 0:
        raise UsageError(f"measures: expected a number of images, 0 for all, got {measure.images}")


def take(measure: Measure, trained: Trained) -> list[Row]:
    """Return the rows of one measure."""
    if measure.suite in MEASURES:
        return [{**row, "measure": measure.key} for row in MEASURES[measure.suite](trained, measure)]
    report = evaluate(
        trained.model, chosen(trained.data.test, measure.images), suite_of(measure.suite),
        protocol=measure.protocol, seed=SEED, classes=trained.data.num_classes, held_out=trained.held_out,
        tags={"data": trained.data.name, "network": trained.config.model.name},
        save_to=trained.folder / f"measured-{measure.key.replace('/', '-')}",
    )  # fmt: skip
    return [slim(row, measure) for row in report.rows]


def slim(row: Row, measure: Measure) -> Row:
    """Return what is kept of a row of an evaluation."""
    source = (row.get("settings") or {}).get("source")
    kept = {name: row[name] for name in KEPT if row.get(name) is not None}
    return {"kind": "cell", "measure": measure.key, **kept} | ({"source": source} if source else {})


def chosen(examples: ExampleSet, count: int) -> ExampleSet:
    """Return a class-balanced choice of examples, the same for all networks; all where there are no more."""
    if count == 0 or count >= len(examples):
        return examples
    return balanced_subset(examples, count, key=fold(SEED, "measured"))
