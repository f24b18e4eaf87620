"""What a model did on each example: enough to recompute every number of a row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nfm.evaluate.calibration import (
    debiased_calibration_error,
    expected_calibration_error,
    signed_calibration_error,
)
from nfm.evaluate.checks import judge
from nfm.evaluate.metrics import wilson_interval
from nfm.results import Row

NONE = -1  # no class was predicted
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Outcomes:
    """One entry an example, in the order of the examples; `scaled` is after temperature scaling."""

    predicted: NDArray[np.int64]  # NONE where the logits are not finite
    correct: NDArray[np.bool_]
    confidence: Floats  # the largest softmax probability
    nll: Floats  # -log of the label's probability, in nats
    brier: Floats  # squared distance of the probabilities from the one-hot label, 0 to 2
    confidence_scaled: Floats | None = None
    nll_scaled: Floats | None = None
    brier_scaled: Floats | None = None
    ids: NDArray[np.int64] | None = None  # which examples: what lets two models be paired

    @classmethod
    def of(
        cls, logits: Tensor, labels: Tensor, *, temperature: float | None = None, ids: Tensor | None = None
    ) -> Outcomes:
        """Return the outcomes of logits (n, K) against int64 labels (n,)."""
        predicted = logits.argmax(1).where(logits.isfinite().all(1), NONE)
        scaled = () if temperature is None else _probabilities(logits / temperature, labels)
        tensors = (predicted, judge(logits, labels), *_probabilities(logits, labels), *scaled)
        made = cls(*(tensor.cpu().numpy() for tensor in tensors))
        return made if ids is None else replace(made, ids=ids.cpu().numpy())

    @classmethod
    def join(cls, parts: Sequence[Outcomes]) -> Outcomes:
        """Return the outcomes of several batches as one."""
        return cls(
            **{name: np.concatenate([part.arrays()[name] for part in parts]) for name in parts[0].arrays()}
        )

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the columns that are there, by name."""
        columns = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: column for name, column in columns.items() if column is not None}

    def check(self, row: Row, other: Outcomes | None) -> None:
        """Refuse outcomes that belie their row, or are of other examples than an `other` cell's, with a ValueError."""
        n, hits = len(self.correct), int(np.count_nonzero(self.correct))
        if n != row["n"]:
            raise ValueError(f"{n} examples, where its row tells {row['n']}")
        if hits != round(row["accuracy"] * n):
            raise ValueError(f"{hits} right ones, where its row tells {round(row['accuracy'] * n)}")
        if self.ids is not None and len(np.unique(self.ids)) != n:
            raise ValueError("ids that name several examples")
        if other is not None and self.arrays().keys() != other.arrays().keys():
            raise ValueError(f"the columns {', '.join(self.arrays())}, where another cell has others")
        if other is not None and not np.array_equal(_sorted(self.ids), _sorted(other.ids)):
            raise ValueError("other examples than those of another cell")

    def flags(self) -> list[str]:
        """Return what these outcomes tell against themselves."""
        share = float((self.predicted == NONE).mean())
        return [f"NaN logits ({100 * share:.3g}%)"] if share else []

    def summary(self) -> Row:
        """Return accuracy with its Wilson interval, and the calibration; None for what is not finite."""
        n, hits = len(self.correct), int(self.correct.sum())
        low, high = wilson_interval(hits, n)
        return {
            "accuracy": hits / n,
            "n": n,
            "lo": low,
            "hi": high,
            **self._calibration(self.confidence),
            "nll": _mean(self.nll),
            "brier": _mean(self.brier),
            **self._scaled(),
        }

    def _calibration(self, confidence: Floats) -> Row:
        if not np.isfinite(confidence).all():
            return dict.fromkeys(("ece", "ece_debiased", "ece_signed"))
        return {
            "ece": expected_calibration_error(confidence, self.correct),
            "ece_debiased": debiased_calibration_error(confidence, self.correct),
            "ece_signed": signed_calibration_error(confidence, self.correct),
        }

    def _scaled(self) -> Row:
        if self.confidence_scaled is None or self.nll_scaled is None or self.brier_scaled is None:
            return {}
        found = self._calibration(self.confidence_scaled)
        found |= {"nll": _mean(self.nll_scaled), "brier": _mean(self.brier_scaled)}
        return {f"{name}_scaled": value for name, value in found.items()}


def _probabilities(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return confidence, NLL and Brier score of each example."""
    log_p = torch.log_softmax(logits.double(), 1)
    true = log_p.gather(1, labels[:, None])[:, 0]
    brier = log_p.exp().square().sum(1) - 2 * true.exp() + 1
    return log_p.amax(1).exp(), -true, brier


def _mean(values: Floats) -> float | None:
    return float(values.mean()) if np.isfinite(values).all() else None


def _sorted(ids: NDArray[np.int64] | None) -> NDArray[np.int64]:
    return np.zeros(0, np.int64) if ids is None else np.sort(ids)
