"""Rows of a study -> its figures."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from nfm.evaluate.corruptions import AUTHORS, CORRUPTIONS
from nfm.plots.boundaries import boundaries
from nfm.plots.canvas import save_figure
from nfm.plots.corruptions import corruption_bars
from nfm.plots.curves import curves
from nfm.plots.dots import accuracy_dots
from nfm.plots.features import feature_images
from nfm.plots.losses import loss_curves
from nfm.plots.training import Panels, training_comparison
from nfm.registry import Registry
from nfm.reproduce.bayes import bayes_radius
from nfm.reproduce.records import EPOCH, RUN
from nfm.reproduce.study import Study
from nfm.results import Row
from nfm.train.fit import PROBE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Drawing = Callable[[str, Sequence[Row]], Iterator[tuple[str, "Figure"]]]  # title, rows -> names and figures
FIGURES: Registry[Drawing] = Registry("figure")
PAPERS_SEVERITY = 3  # of the bars of its six corruptions
GRIDS = ("cifar", "vit", "imagenet")  # suites of a few levels of each noise


def draw_figures(study: Study, scale: str, rows: Sequence[Row], folder: Path) -> list[Path]:
    """Draw what the study shows; return the files."""
    title = f"{study.title} ({scale} scale)"
    rows = [row for row in rows if not study.drawn or row["arm"] in study.drawn]
    return [
        save_figure(figure, folder / f"{study.id}-{scale}-{name}.png")
        for kind in study.figures
        for name, figure in FIGURES[kind](title, rows)
    ]


def _measured(rows: Sequence[Row], *suites: str) -> dict[str, list[Row]]:
    """Return the rows of cells of some suites by data set and protocol."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        if row["kind"] == "cell" and row["measure"].split("/")[0] in suites:
            groups.setdefault(f"{row['data']}-{row['measure'].split('/')[1]}", []).append(row)
    return groups


def _about(title: str, rows: Sequence[Row]) -> str:
    """Return a title that tells what was measured."""
    row = rows[0]
    return f"{title}: {row['data']}, {row['n']:,} test images, protocol {row['protocol']}"


@FIGURES.register("curves")
def _curves(title: str, rows: Sequence[Row]) -> Iterator[tuple[str, Figure]]:
    measured = _measured(rows, "curves") or _measured(rows, *GRIDS)  # the paper's ViT has curves of its grid
    for name, own in measured.items():
        yield f"curves-{name}", curves(own, title=_about(title, own))


@FIGURES.register("attacks")
def _attacks(title: str, rows: Sequence[Row]) -> Iterator[tuple[str, Figure]]:
    for name, own in _measured(rows, "pgd7-curves").items():
        yield f"attacks-{name}", curves(own, title=_about(title, own))


@FIGURES.register("corruptions")
def _corruptions(title: str, rows: Sequence[Row]) -> Iterator[tuple[str, Figure]]:
    for name, own in _measured(rows, "corruptions-19", "corruptions-15", "corruptions-paper6").items():
        corrupted = [row for row in own if row["perturbation"] in CORRUPTIONS]
        yield f"corruptions-{name}", corruption_bars(corrupted, title=_about(title, own))
        six = [row for row in corrupted if row["perturbation"] in AUTHORS]
        if 0 < len(six) < len(corrupted):
            about = f"{_about(title, own)}, the paper's six"
            yield f"corruptions-six-{name}", corruption_bars(six, title=about, severity=PAPERS_SEVERITY)


@FIGURES.register("training")
def _training(title: str, rows: Sequence[Row]) -> Iterator[tuple[str, Figure]]:
    """Draw errors, as the paper does."""
    epochs = [row | _errors(row) for row in rows if row["kind"] == EPOCH]
    runs = [row for row in rows if row["kind"] == RUN]
    if epochs:
        yield "training", training_comparison(epochs, title=title, panels=_error_panels(runs))


def _errors(epoch: Row) -> Row:
    """Return the errors after an epoch, of those parts that were measured."""
    parts = {"probe_accuracy": "train_error", "validation_accuracy": "other_error"}
    return {error: 1 - epoch[name] for name, error in parts.items() if name in epoch}


def _error_panels(runs: Sequence[Row]) -> Panels:
    """Return the panels of errors, with how many images they are of; those that are watched are of the test part."""
    known = {min(_subset(run["config"]) or PROBE, PROBE) for run in runs}
    watched = {run["watch"] for run in runs}
    told = f"test error in % ({_counts(watched)} images)" if any(watched) else "validation error in %"
    return {
        "train_error": (f"training error in % ({_counts(known)} images)", 100),
        "other_error": (told, 100),
    }


def _subset(config: Row) -> int:
    """Return how many images a run trains on, 0 for all; a run in a file of many keeps what was chosen alone."""
    return int(config["data"]["subset"] if "data" in config else config.get("data.subset", 0))


def _counts(numbers: Collection[int]) -> str:
    return " to ".join(f"{number:,}" for number in sorted({min(numbers), max(numbers)}))


@FIGURES.register("dots")
def _dots(title: str, rows: Sequence[Row]) -> Iterator[tuple[str, Figure]]:
    """Draw one figure, of the protocol that is measured first."""
    for name, own in itertools.islice(_measured(rows, "cifar").items(), 1):
        yield f"dots-{name}", accuracy_dots(own, title=_about(title, own))


@FIGURES.register("boundaries")
def _boundaries(title: str, rows: Sequence[Row]) -> Iterator[tuple[str, Figure]]:
    drawn = [row for row in rows if row["kind"] == "boundary" and not row["of"]]
    toys = [row for row in rows if row["kind"] == "toy"]
    if drawn:
        captions = {row["scheme"]: _caption(row, toys) for row in drawn}
        told = (
            f"{title}: networks of seed {drawn[0]['train_seed']}\naccuracy in %: of the network that is drawn, "
            f"mean of {len({row['train_seed'] for row in toys})} seeds, and the paper's, of one seed"
        )
        yield "boundaries", boundaries(drawn, radius=bayes_radius(), captions=captions, title=told)


def _caption(drawn: Row, toys: Sequence[Row]) -> str:
    """Return a scheme with its accuracies in %: of the drawn network, the mean over seeds, the published one."""
    accuracies = {row["train_seed"]: 100 * row["accuracy"] for row in toys if row["arm"] == drawn["arm"]}
    published = f", paper {drawn['published'][0]:.1f}" if drawn["published"] else ""
    own = accuracies[drawn["train_seed"]]
    return f"{drawn['scheme']}\ndrawn {own:.1f}, mean {fmean(accuracies.values()):.1f}{published}"


@FIGURES.register("losses")
def _losses(title: str, rows: Sequence[Row]) -> Iterator[tuple[str, Figure]]:
    losses = [row for row in rows if row["kind"] == "taylor"]
    if losses:
        yield "losses", loss_curves(losses, title=title)


@FIGURES.register("features")
def _features(title: str, rows: Sequence[Row]) -> Iterator[tuple[str, Figure]]:
    images = [row for row in rows if row["kind"] == "feature"]
    if images:
        yield "features", feature_images(images, title=title)
