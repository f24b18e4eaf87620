"""A strip: a few examples as the model saw them in one cell, and what it took them for. For people to look at."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from nfm.data.examples import ExampleSet

SHOWN = 6  # examples, each of another class
SIDE = 96  # pixels: larger images are shrunk, they are only looked at


@dataclass(frozen=True, eq=False)
class Strip:
    """Images uint8 (k, C, H, W), and for each of them one entry of every other column."""

    images: NDArray[np.uint8]
    labels: NDArray[np.int64]
    ids: NDArray[np.int64]
    predicted: NDArray[np.int64]
    confidence: NDArray[np.float64]

    @classmethod
    def of(cls, x: Tensor, y: Tensor, ids: Tensor, logits: Tensor) -> Strip:
        """Return the strip of pixels (k, C, H, W) and the logits (k, K) they were given."""
        confidence, predicted = torch.softmax(logits.double(), 1).max(1)
        columns = (_shrink(x), y, ids, predicted, confidence)
        return cls(*(column.cpu().numpy() for column in columns))


def choose_shown(examples: ExampleSet) -> Tensor:
    """Return the indices of the examples to show: of each class the one of the least id, some classes only.

    They depend on the data alone, so that all models are shown on the same ones.
    """
    order = examples.ids.argsort(stable=True)
    labels = examples.labels[order]
    first = [int(order[(labels == label).nonzero()[0, 0]]) for label in labels.unique().tolist()[:SHOWN]]
    return torch.tensor(first, dtype=torch.int64)


def _shrink(x: Tensor) -> Tensor:
    """Return pixels as bytes, of at most SIDE pixels a side."""
    height, width = x.shape[2:]
    factor = SIDE / max(height, width)
    if factor < 1:
        size = [max(1, round(factor * height)), max(1, round(factor * width))]
        x = F.interpolate(x, size=size, mode="area")
    return x.clamp(0, 1).mul(255).round().to(torch.uint8)
