"""What is measured: a model on examples under a protocol, one cell at a time."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor, nn

from nfm.data.examples import ExampleSet, to_unit
from nfm.errors import DataError, NumericalError, UsageError
from nfm.evaluate.attack import Attack, gradient_faults
from nfm.evaluate.calibration import fit_temperature
from nfm.evaluate.checks import Classifier, find_problems, hash_model, predict
from nfm.evaluate.fingerprints import hash_pixels, summarise_output
from nfm.evaluate.journal import OUTPUT
from nfm.evaluate.outcomes import Outcomes
from nfm.evaluate.perturbation import Perturbation
from nfm.evaluate.protocols import EvaluationProtocol
from nfm.evaluate.strip import Strip
from nfm.evaluate.suites import Cell
from nfm.randomness import fold, torch_generator
from nfm.results import Row

SAMPLE = 1000  # examples, drawn from all, at which the gradient is looked at
PROBE = 16  # examples on which a model is inspected


class Batch(NamedTuple):
    """Pixels float32 in [0, 1], labels and ids, both int64."""

    x: Tensor
    y: Tensor
    ids: Tensor


@dataclass(frozen=True)
class Subject:
    """A model, the examples it is measured on, and how."""

    model: Classifier
    examples: ExampleSet
    protocol: EvaluationProtocol
    seed: int
    batch_size: int
    temperature: float | None = None  # where one was fitted on held-out examples

    def __post_init__(self) -> None:
        check_examples(self.examples)
        if not isinstance(self.batch_size, int) or self.batch_size < 1:
            raise UsageError(f"batch_size: expected a whole number from 1 up, got {self.batch_size!r}")

    def identity(self) -> Row:
        """Return what must agree for a measured cell to be used again."""
        x = self.batch(self.examples.ids.argsort()[:PROBE]).x
        return {
            "model": hash_model(self.model, x),
            OUTPUT: summarise_output(self.model, x),
            "protocol": repr(self.protocol),
            "ids": hash_examples(self.examples),
            "pixels": hash_pixels(self.examples),
            "n": len(self.examples),
            "seed": self.seed,
            "temperature": self.temperature,
        }

    def problems(self, classes: int | None) -> list[str]:
        """Return what makes the numbers of this model meaningless."""
        return find_problems(self.model, self._probe().x, self.examples.labels, classes=classes)

    def measure(self, cell: Cell, *, force: bool, step: Callable[[int], None]) -> Outcomes:
        """Return what the model does on each example under `cell`; `step` is told the examples done."""
        parts = []
        for batch in self._batches(self.batch_size):
            logits = predict(self.model, self._perturb(batch, cell))
            if not (force or torch.isfinite(logits).all()):
                raise NumericalError(f"{cell.label}: the model's logits are not finite; look at its weights")
            parts.append(Outcomes.of(logits, batch.y, temperature=self.temperature, ids=batch.ids))
            step(len(batch.x))
        return Outcomes.join(parts)

    def show(self, cell: Cell, shown: Tensor) -> Strip:
        """Return the examples at the indices `shown` as the model sees them under `cell`."""
        batch = self.batch(shown)
        x = self._perturb(batch, cell)
        return Strip.of(x, batch.y, batch.ids, predict(self.model, x))

    def calibrated_on(self, held_out: ExampleSet) -> Subject:
        """Return the subject with the temperature that fits `held_out`, on which nothing is measured."""
        other = replace(self, examples=held_out)
        pairs = [(predict(self.model, batch.x), batch.y) for batch in other._batches(self.batch_size)]
        logits, labels = (torch.cat(column) for column in zip(*pairs, strict=True))
        return replace(self, temperature=fit_temperature(logits, labels))

    def check_cells(self, cells: Iterable[Cell]) -> None:
        """Refuse a cell that this protocol does not define, before anything is measured."""
        for cell in cells:
            self.protocol.check(cell.perturbation)

    def gradient_faults(self) -> dict[str, float]:
        """Return the share of examples at which the model has no gradient of use, by the fault."""
        drawn = torch.randperm(len(self.examples), generator=torch_generator(fold(self.seed, "gradients")))
        found = [
            gradient_faults(self.model, batch.x, batch.y, batch.ids, seed=self.seed)
            for batch in map(self.batch, drawn[:SAMPLE].split(self.batch_size))
        ]
        return {
            fault: float(torch.cat([part[fault] for part in found]).double().mean()) for fault in found[0]
        }

    def batch(self, indices: Tensor) -> Batch:
        """Return the examples at `indices`, where the model is."""
        network = isinstance(self.model, nn.Module)
        device = next(self.model.parameters(), torch.empty(0)).device if network else "cpu"  # type: ignore[attr-defined]
        x = to_unit(self.examples.fetch(indices))
        y, ids = self.examples.labels[indices], self.examples.ids[indices]
        return Batch(x.to(device), y.to(device), ids.to(device))

    def _perturb(self, batch: Batch, cell: Cell) -> Tensor:
        change, level = cell.perturbation, cell.level
        if isinstance(change, Attack):
            return change(self.model, batch.x, batch.y, batch.ids, level, seed=self.seed)
        if isinstance(change, Perturbation):
            return self.protocol.perturb(batch.x, batch.ids, change, level, seed=self.seed)
        raise UsageError(f"expected a Perturbation or an Attack in a cell, got {change!r}")

    def _probe(self) -> Batch:
        return next(self._batches(PROBE))

    def _batches(self, size: int) -> Iterator[Batch]:
        for indices in torch.arange(len(self.examples)).split(size):
            yield self.batch(indices)


def check_examples(examples: ExampleSet) -> None:
    """Refuse what is no set of examples, an empty one, labels that are no classes, and ids that name two."""
    if not all(hasattr(examples, name) for name in ("labels", "ids", "fetch")):
        raise UsageError(
            "expected a data set of nfm.data or examples, such as nfm.data.examples.Examples(images, labels, ids), "
            f"got {type(examples).__name__}"
        )
    n, labels = len(examples), examples.labels
    if n == 0:
        raise DataError("expected at least one example, got an empty set")
    if labels.dtype != torch.int64 or labels.shape != (n,):
        raise DataError(f"expected {n} labels (int64), got {labels.dtype} {tuple(labels.shape)}")
    different = len(examples.ids.unique())
    if len(examples.ids) != n or different != n:
        raise DataError(
            f"expected {n} ids, one an example, got {len(examples.ids)}, of which {different} differ"
        )


def hash_examples(examples: ExampleSet) -> str:
    """Return a hash of ids and labels that does not depend on their order."""
    order = examples.ids.argsort()
    pairs = torch.stack([examples.ids[order], examples.labels[order]])
    return hashlib.sha256(pairs.cpu().numpy().tobytes()).hexdigest()[:16]
