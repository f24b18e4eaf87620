"""The toy task: accuracy on 20,000 fresh points, excess risk over Bayes, a paired test, and the boundary to draw."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, median

import numpy as np
import torch
from torch import Tensor, nn

from nfm.data.examples import ExampleSet
from nfm.data.toy import circles
from nfm.errors import DataError
from nfm.evaluate.metrics import accuracy
from nfm.randomness import fold
from nfm.reproduce.bayes import bayes_accuracy
from nfm.reproduce.measuring import MEASURES, Trained
from nfm.reproduce.statistics import DIGITS, EXACT, over_runs, paired_test
from nfm.reproduce.study import Arm, Line, Measure
from nfm.reproduce.summaries import SUMMARIES
from nfm.results import Row

TEST_POINTS = 20_000
EXTENT, SIDE = 2.0, 51  # of the square whose probabilities are kept for the figure
DRAWN_SEED = 0
NEAR = 0.005  # half a point: as near to Bayes as the question asks
COLLAPSED = 0.6  # accuracy: below, a network tells hardly more than a coin


@MEASURES.register("circles")
def measure_circles(trained: Trained, measure: Measure) -> list[Row]:
    """Return accuracies on fresh, own test and validation points; for one seed also the boundary."""
    points, labels = circles(TEST_POINTS, key=fold(0, "circles", "fresh test points"))
    seed = trained.config.train.seed
    hits = predict(trained.model, torch.from_numpy(points).float()).argmax(1).numpy() == labels
    row: Row = {
        "kind": "toy", "accuracy": accuracy(hits), "n": TEST_POINTS,
        "own_test": _accuracy(trained.model, trained.data.test), "own_n": len(trained.data.test),
        "validation": _accuracy(trained.model, trained.data.validation),
    }  # fmt: skip
    return [row, *([_boundary(trained)] if seed == DRAWN_SEED else [])]


def predict(model: nn.Module, x: Tensor) -> Tensor:
    """Return class probabilities (n, 2)."""
    with torch.no_grad():
        return model(x.to(next(model.parameters()).device)).softmax(1).cpu()


def _accuracy(model: nn.Module, examples: ExampleSet) -> float:
    found = predict(model, examples.fetch(torch.arange(len(examples))).float()).argmax(1)
    return accuracy((found == examples.labels).numpy())


def _boundary(trained: Trained) -> Row:
    """Return the probability of the inner circle over a square, in %, and the points of training and test.

    Whole percents would hide the boundary where dead ReLUs leave a plateau at 50.02%.
    """
    ticks = torch.linspace(-EXTENT, EXTENT, SIDE)
    y, x = torch.meshgrid(ticks, ticks, indexing="ij")
    inner = predict(trained.model, torch.stack([x.flatten(), y.flatten()], 1))[:, 1]
    train, test = trained.data.train, trained.data.test
    return {
        "kind": "boundary", "extent": EXTENT, "side": SIDE, "inner": (100 * inner).double().round(decimals=2).tolist(),
        "points": _places(train), "labels": train.labels.tolist(),
        "test_points": _places(test), "test_labels": test.labels.tolist(),
    }  # fmt: skip


def _places(examples: ExampleSet) -> list[list[float]]:
    points = examples.fetch(torch.arange(len(examples))).numpy().astype(np.float64)
    rounded: list[list[float]] = points.round(2).tolist()
    return rounded


@SUMMARIES.register("circles")
def summarise_circles(lines: Sequence[Line], rows: Sequence[Row]) -> Row:
    """Return each scheme's mean, excess risk and p-value, and the best of its settings by validation."""
    best = bayes_accuracy()
    measured: dict[str, list[Row]] = {}
    for row in rows:
        if row["kind"] == "toy":
            measured.setdefault(row["arm"], []).append(row)
    own = [line.arm for line in lines if not line.arm.of and line.arm.name in measured]
    return {
        "kind": "toy", "bayes": round(best, DIGITS), "n": TEST_POINTS, "baseline": own[0].title,
        "lines": [_summary(arm, [line.arm for line in lines], measured, own[0], best) for arm in own],
    }  # fmt: skip


def _summary(
    arm: Arm, arms: Sequence[Arm], measured: dict[str, list[Row]], baseline: Arm, best: float
) -> Row:
    own = measured[arm.name]
    number = over_runs(own)
    settings = _settings(arm.name, arms, measured)
    chosen = _best(settings, measured)
    tuned = over_runs(measured[chosen.name])
    if number is None or tuned is None:
        raise DataError(f"toy: expected rows with an accuracy of {arm.name}, got none")
    return {
        "arm": arm.name, "label": arm.title, "published": list(arm.published), "accuracy": number.as_row(),
        "median": round(median(row["accuracy"] for row in own), DIGITS),
        "collapsed": sum(row["accuracy"] < COLLAPSED for row in own),
        "own_test": round(fmean(row["own_test"] for row in own), DIGITS), "excess": round(best - number.mean, DIGITS),
        "p_value": None if arm is baseline else _p_value(own, measured[baseline.name]),
        "settings": len(settings), "chosen": chosen.note or chosen.title, "tuned": tuned.as_row(),
        "tuned_excess": round(best - tuned.mean, DIGITS), "near_bayes": best - tuned.mean <= NEAR,
        "further": _further(arm, arms, measured) if arm.extends in measured else None,
    }  # fmt: skip


def _settings(name: str, arms: Sequence[Arm], measured: dict[str, list[Row]]) -> list[Arm]:
    """Return the arm called `name` and its settings, those that were measured."""
    return [arm for arm in arms if name in (arm.name, arm.of) and arm.name in measured]


def _best(settings: Sequence[Arm], measured: dict[str, list[Row]]) -> Arm:
    """Return the one that is best on validation points."""
    return max(settings, key=lambda arm: fmean(row["validation"] for row in measured[arm.name]))


def _further(arm: Arm, arms: Sequence[Arm], measured: dict[str, list[Row]]) -> Row:
    """Return what an arm has over the one that it adds something to, and the best setting of it over that one's."""
    names = (arm.name, arm.extends)
    own, other = (measured[name] for name in names)
    best, others_best = (measured[_best(_settings(name, arms, measured), measured).name] for name in names)
    against = next(known.title for known in arms if known.name == arm.extends)
    return {"against": against, "plain": _ahead(own, other), "tuned": _ahead(best, others_best)}


def _ahead(first: Sequence[Row], second: Sequence[Row]) -> Row:
    """Return how far the mean of some runs is ahead of that of others."""
    means = [fmean(row["accuracy"] for row in rows) for rows in (first, second)]
    return {"difference": round(means[0] - means[1], DIGITS), "p_value": _p_value(first, second)}


def _p_value(first: Sequence[Row], second: Sequence[Row]) -> float | None:
    """Return the p-value of the difference, paired by seed: the same data and the same first weights."""
    a, b = ({row["train_seed"]: row["accuracy"] for row in rows} for rows in (first, second))
    seeds = sorted(a.keys() & b.keys())
    if not 1 < len(seeds) <= EXACT:
        return None
    return paired_test([a[s] for s in seeds], [b[s] for s in seeds])
