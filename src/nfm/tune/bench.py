"""What all runs of a study share: data without its test part, the cells, where runs are kept."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import torch
from torch import nn

from nfm.config.build import build_data, build_parts
from nfm.config.schema import Config
from nfm.data.examples import DataSet, ExampleSet, empty_like, to_unit
from nfm.errors import NumericalError, UsageError
from nfm.evaluate.checks import measuring, predict
from nfm.evaluate.suites import Cell
from nfm.evaluate.sweep import evaluate
from nfm.train.ranks import Ranks
from nfm.tune.dominance import Score

FEW = 8  # examples of a rehearsal


@dataclass(frozen=True)
class Bench:
    """Where networks are trained and measured; `data` has no test part."""

    config: Config
    data: DataSet
    cells: tuple[Cell, ...]
    folder: Path
    ranks: Ranks
    prune: bool  # drop trials without hope

    def measure(self, model: nn.Module, *, save_to: Path | None = None) -> Score:
        """Return the accuracies of `model` on the validation examples; with `save_to`, cells are kept there."""
        self._check_finite(model)
        return self._score(model, self.data.validation, save_to)

    def rehearse(self) -> None:
        """Measure an untrained network on a few examples: a cell that cannot be measured is told before hours."""
        model = build_parts(self.config, self.data).model.to(self.ranks.device)
        count = min(FEW, len(self.data.validation))
        self._score(model, self.data.validation.subset(torch.arange(count)), None)

    def _score(self, model: nn.Module, examples: ExampleSet, save_to: Path | None) -> Score:
        report = evaluate(
            model, examples, self.cells, seed=self.config.train.seed, classes=self.data.num_classes,
            save_to=save_to,
        )  # fmt: skip
        cells = {cell.label: report.row(*cell.key)["accuracy"] for cell in self.cells}
        robust = [cells[cell.label] for cell in self.cells if cell.level]
        clean = next(cells[cell.label] for cell in self.cells if not cell.level)
        return Score(clean, fmean(robust), len(examples), cells)

    def _check_finite(self, model: nn.Module) -> None:
        few = torch.arange(min(FEW, len(self.data.validation)))
        x = to_unit(self.data.validation.fetch(few)).to(self.ranks.device)
        with measuring(model):
            if not torch.isfinite(predict(model, x)).all():
                raise NumericalError("the network's logits are not finite: training went astray")


def make_bench(config: Config, cells: Sequence[Cell], folder: Path, ranks: Ranks, *, prune: bool) -> Bench:
    """Read the data of `config`, and let go of its test part: nothing here can look at it."""
    if config.train.epochs < 1:
        raise UsageError(f"epochs: expected at least 1, got {config.train.epochs}")
    if not any(cell.level for cell in cells):
        raise UsageError(
            "levels: expected a perturbation with a level above 0, such as white_noise=0.2, got none"
        )
    if config.data.validation == 0:
        raise UsageError(
            "data.validation: expected a share of the training part to choose by, got 0; the test part is never "
            "used for that: leave the key out, or --set data.validation=0.1"
        )
    data = build_data(config.data)
    if not len(data.validation):
        raise UsageError(
            f"{config.data.name}: expected validation examples to choose by, got none; --set data.validation=0.1"
        )
    data = dataclasses.replace(data, test=empty_like(data.train))
    return Bench(config, data, tuple(cells), folder, ranks, prune)
