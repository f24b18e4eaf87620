"""What a model did on each example: enough to recompute every number of a row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
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
from nfm.evaluate.metrics import wilson_interval
from nfm.results import Row


@dataclass(frozen=True, eq=False)
class Outcomes:
    """One entry an example, in the order of the examples."""

    predicted: NDArray[np.int64]
    correct: NDArray[np.bool_]
    confidence: NDArray[np.float64]  # the largest softmax probability
    nll: NDArray[np.float64]  # -log of the label's probability, in nats
    brier: NDArray[np.float64]  # squared distance of the probabilities from the one-hot label, 0 to 2

    @classmethod
    def of(cls, logits: Tensor, labels: Tensor) -> Outcomes:
        """Return the outcomes of logits (n, K) against int64 labels (n,)."""
        log_p = torch.log_softmax(logits.double(), 1)
        confidence, predicted = log_p.exp().max(1)
        true = log_p.gather(1, labels[:, None])[:, 0]
        brier = log_p.exp().square().sum(1) - 2 * true.exp() + 1
        tensors = (predicted, predicted == labels, confidence, -true, brier)
        return cls(*(tensor.cpu().numpy() for tensor in tensors))

    @classmethod
    def join(cls, parts: Sequence[Outcomes]) -> Outcomes:
        """Return the outcomes of several batches as one."""
        columns = ([getattr(part, name) for part in parts] for name in cls.__dataclass_fields__)
        return cls(*(np.concatenate(column) for column in columns))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the columns by name."""
        return asdict(self)

    def summary(self) -> Row:
        """Return accuracy with its Wilson interval, and the calibration; None for what is not finite."""
        n, hits = len(self.correct), int(self.correct.sum())
        low, high = wilson_interval(hits, n)
        row: Row = {
            "accuracy": hits / n,
            "n": n,
            "lo": low,
            "hi": high,
            "ece": None,
            "nll": None,
            "brier": None,
        }
        if not np.isfinite(self.confidence).all():
            return row
        return row | {
            "ece": expected_calibration_error(self.confidence, self.correct),
            "ece_debiased": debiased_calibration_error(self.confidence, self.correct),
            "ece_signed": signed_calibration_error(self.confidence, self.correct),
            "nll": float(self.nll.mean()) if np.isfinite(self.nll).all() else None,
            "brier": float(self.brier.mean()),
        }
