"""Accuracy: of mixed batches, weighted as their labels are, and of plain ones, each example once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from nfm.core.draw import Draw
from nfm.data.batches import Batches
from nfm.train.ranks import Ranks


def _classes(y: Tensor) -> Tensor:
    return y.argmax(1) if y.is_floating_point() else y


def weighted_correct(output: Any, y: Tensor, draw: Draw) -> float:
    """Return how many of a mixed batch are right: weight for one's own label, the rest for the partner's."""
    if not isinstance(output, Tensor) or output.ndim != 2:
        return float("nan")
    predicted = output.detach().argmax(1)
    own, other, weight = draw.pairs(_classes(y))
    weight = weight.to(predicted.device)
    right = weight * (predicted == own) + (1 - weight) * (predicted == other)
    return float(right.sum())


def measure(forward: Callable[[Tensor], Tensor], batches: Batches, ranks: Ranks) -> tuple[float, float]:
    """Return the accuracy and the mean cross-entropy of `forward` on all examples of all ranks."""
    sums = torch.zeros(3, dtype=torch.float64)
    with torch.inference_mode():
        for batch in batches.epoch(0):
            if not len(batch):
                continue
            y = batch.y.to(ranks.device)
            logits = forward(batch.x.to(ranks.device)).float()
            loss = F.cross_entropy(logits, y, reduction="sum")
            right = (logits.argmax(1) == _classes(y)).sum()
            sums += torch.tensor([right.item(), loss.item(), len(batch)], dtype=torch.float64)
    right_, loss_, count = ranks.summed(sums).tolist()
    return right_ / count, loss_ / count
