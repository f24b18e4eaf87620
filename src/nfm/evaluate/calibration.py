"""How far confidence is from accuracy: ECE and its relatives, temperature, reliability diagrams.

All of them are computed on the full set at once: an average over batches is another number.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from nfm.errors import ShapeError, UsageError
from nfm.evaluate.metrics import wilson_interval
from nfm.results import Row

BINS = 15  # Guo et al. 2017, "On calibration of modern neural networks"


def reliability_rows(confidence: ArrayLike, correct: ArrayLike, *, bins: int = BINS) -> list[Row]:
    """Return one row a nonempty bin of equal width: n, mean confidence, accuracy and its Wilson interval."""
    confidence, correct = _checked(confidence, correct)
    place = np.minimum((confidence * bins).astype(int), bins - 1)
    rows = []
    for index in np.unique(place):
        inside = place == index
        n, hits = int(inside.sum()), int(correct[inside].sum())
        low, high = wilson_interval(hits, n)
        rows.append(
            {
                "lower": float(index / bins), "upper": float((index + 1) / bins), "n": n,
                "confidence": float(confidence[inside].mean()), "accuracy": hits / n, "lo": low, "hi": high,
            }
        )  # fmt: skip
    return rows


def expected_calibration_error(confidence: ArrayLike, correct: ArrayLike, *, bins: int = BINS) -> float:
    """Return the mean over bins of |confidence - accuracy|, weighted by their examples (Naeini et al. 2015).

    >>> expected_calibration_error([0.9, 0.9, 0.9, 0.9], [True, True, False, False])
    0.4
    """
    return _gap(reliability_rows(confidence, correct, bins=bins))


def debiased_calibration_error(confidence: ArrayLike, correct: ArrayLike, *, bins: int = BINS) -> float:
    """Return the ECE less its upward bias, not below 0.

    Kumar, Liang & Ma 2019, "Verified uncertainty calibration", with their normal approximation:
    a bin's accuracy is taken as normal with variance acc (1 - acc) / n; the bias is the expected gap of such
    a draw (the mean of a folded normal, in closed form) less the gap itself.
    """
    rows = reliability_rows(confidence, correct, bins=bins)
    drawn = math.fsum(row["n"] * _folded(row) for row in rows) / sum(row["n"] for row in rows)
    return max(0.0, 2 * _gap(rows) - drawn)


def signed_calibration_error(confidence: ArrayLike, correct: ArrayLike) -> float:
    """Return mean confidence less accuracy: above 0 is overconfident, below 0 underconfident."""
    confidence, correct = _checked(confidence, correct)
    return float(confidence.mean() - correct.mean())


def fit_temperature(logits: Tensor, labels: Tensor) -> float:
    """Return the T > 0 that minimises the mean NLL of softmax(logits / T) on a held-out set.

    Guo et al. 2017, "On calibration of modern neural networks".
    The NLL is convex in 1/T, so the root of its derivative is found by bisection.
    """
    if logits.dim() != 2 or labels.shape != logits.shape[:1] or len(labels) == 0:
        raise ShapeError(
            f"expected logits (n, K) and labels (n,), got {tuple(logits.shape)} and {tuple(labels.shape)}"
        )
    scores = logits.double() - logits.double().gather(1, labels[:, None])
    low, high = -7.0, 7.0  # log of 1/T: T from 0.001 to 1100
    for _ in range(60):
        middle = (low + high) / 2
        slope = (torch.softmax(scores * math.exp(middle), 1) * scores).sum(1).mean()
        low, high = (low, middle) if slope > 0 else (middle, high)
    return math.exp(-(low + high) / 2)


def _checked(confidence: ArrayLike, correct: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    p, hit = np.asarray(confidence, dtype=np.float64), np.asarray(correct, dtype=bool)
    if p.shape != hit.shape or p.ndim != 1 or p.size == 0:
        raise ShapeError(
            f"expected one confidence and one outcome an example, got shapes {p.shape} and {hit.shape}"
        )
    if not (p.min() >= 0 and p.max() <= 1 + 1e-9):
        raise UsageError(f"expected confidences in [0, 1], got values from {p.min():g} to {p.max():g}")
    return p, hit


def _gap(rows: list[Row]) -> float:
    weighted = (row["n"] * abs(row["confidence"] - row["accuracy"]) for row in rows)
    return math.fsum(weighted) / sum(row["n"] for row in rows)


def _folded(row: dict[str, Any]) -> float:
    """Return E|N(gap, s**2)| with s the standard error of the bin's accuracy."""
    gap, spread = (
        row["confidence"] - row["accuracy"],
        math.sqrt(row["accuracy"] * (1 - row["accuracy"]) / row["n"]),
    )
    if spread == 0:
        return abs(gap)
    bell = spread * math.sqrt(2 / math.pi) * math.exp(-((gap / spread) ** 2) / 2)
    return bell + gap * math.erf(gap / (spread * math.sqrt(2)))
