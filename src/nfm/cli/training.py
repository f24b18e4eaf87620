"""What ``nfm train`` does once its recipe is read."""

from __future__ import annotations

import dataclasses
import json
import re
from dataclasses import dataclass
from pathlib import Path

from nfm.config.build import Parts, build_run
from nfm.config.runs import to_recipe
from nfm.config.schema import Config
from nfm.errors import EnvironmentProblem
from nfm.plots.training import training_curves
from nfm.results import Row
from nfm.train.estimate import estimate
from nfm.train.export import tensorboard_writer, write_csv, write_tensorboard
from nfm.train.fit import Fit, fit
from nfm.train.progress import Progress, choose_progress
from nfm.train.ranks import Ranks, joined


@dataclass(frozen=True)
class Options:
    """Where a run goes, and what is to be done beside training."""

    out: Path | None
    resume: bool = False
    overwrite: bool = False
    device: str = "auto"
    dry_run: bool = False
    tensorboard: bool = False
    csv: bool = False
    theory: bool = False


def default_out(config: Config) -> Path:
    """Return the folder of a run that was given none."""
    words = (config.data.name, config.model.name, config.method.scheme, f"seed{config.train.seed}")
    return Path("runs") / "-".join(re.sub(r"[:/]", "_", word).replace(" ", "") for word in words)


def train_run(config: Config, options: Options) -> Fit | None:
    """Train by `config`, in this process or among those that torchrun started."""
    if options.tensorboard:
        tensorboard_writer()  # asked for before hours of training, not after
    with joined(options.device) as ranks:
        parts = build_run(config)
        if options.dry_run:
            if ranks.first:
                print(plan(config, parts, ranks))
            return None
        out = options.out or default_out(config)
        made = fit(
            parts.model, parts.method, parts.data, optimizer=config.optimizer, schedule=config.schedule,
            settings=config.train, augment=parts.augment, out=out, resume=options.resume,
            overwrite=options.overwrite, ranks=ranks, recipe=to_recipe(config, parts.data),
            progress=_meter(parts, out) if options.theory and ranks.first else None,
        )  # fmt: skip
        if ranks.first:
            _finish(made, out, options)
        return made


def _meter(parts: Parts, out: Path) -> Progress:
    """Return a progress that also measures the theory's quantities after each epoch."""
    from nfm.cli.theorising import training_meter

    return training_meter(parts, out, choose_progress())


def plan(config: Config, parts: Parts, ranks: Ranks) -> str:
    """Return what training would be: sites, shapes, parameters, steps, time and memory."""
    told = estimate(
        parts.model, parts.method, parts.data, config.optimizer, config.train, parts.augment, ranks
    )
    settings = json.dumps(dataclasses.asdict(config), indent=1)
    return f"{settings}\n{parts.method!r}\n{told}"


def _finish(made: Fit, out: Path, options: Options) -> None:
    """Keep a picture beside the run, and say in one screen what came out."""
    epochs = [row for row in made.rows if row["kind"] == "epoch"]
    if options.csv:
        write_csv(epochs, out / "epochs.csv")
    if options.tensorboard:
        write_tensorboard(made.rows, out / "tensorboard")
    lines = [f"run:         {out}"]
    if epochs:
        last = epochs[-1]
        lines.append(
            f"train loss:  {last['train_loss']:.4f} (mixed)   probe {100 * last['probe_accuracy']:.1f}%"
        )
        if "validation_accuracy" in last:
            best = max(row["validation_accuracy"] for row in epochs)
            lines.append(
                f"validation:  {100 * last['validation_accuracy']:.2f}% last, {100 * best:.2f}% best"
            )
        lines.append(f"picture:     {_picture(epochs, out / 'training.png')}")
    print("\n".join(lines))


def _picture(epochs: list[Row], path: Path) -> str:
    """Draw the curves and return where they are; a run is good without them, too."""
    try:
        return str(training_curves(epochs, path))
    except EnvironmentProblem as problem:
        return f"none ({problem})"
