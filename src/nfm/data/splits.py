"""Keyed choices among examples: validation, balanced subsets, class imbalance, label noise."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nfm.data.draws import uniforms
from nfm.data.examples import ExampleSet
from nfm.errors import DataError, UsageError
from nfm.randomness import numpy_generator

Ints = NDArray[np.int64]


def class_of(labels: Tensor) -> Ints:
    """Return the class of each example; of probabilities, the most likely one."""
    return (labels.argmax(1) if labels.ndim == 2 else labels).numpy().astype(np.int64)


def rank_in_class(classes: Ints, *, key: int) -> tuple[Ints, NDArray[np.float64]]:
    """Return each example's place in a random order of its class, and the random numbers it came from."""
    chance = numpy_generator(key).random(len(classes))
    order = np.lexsort((chance, classes))
    starts = np.r_[0, np.cumsum(np.bincount(classes))][:-1]
    rank = np.empty(len(classes), dtype=np.int64)
    rank[order] = np.arange(len(classes)) - starts[classes[order]]
    return rank, chance


def pick(mask: NDArray[Any]) -> Tensor:
    return torch.from_numpy(np.flatnonzero(mask))


def split(examples: ExampleSet, fraction: float, *, key: int) -> tuple[ExampleSet, ExampleSet]:
    """Return (kept, held): `held` is a stratified random `fraction`, its size rounded to a whole number."""
    if not 0 <= fraction < 1:
        raise UsageError(f"validation: expected a fraction from 0 to below 1, got {fraction!r}")
    classes = class_of(examples.labels)
    rank, chance = rank_in_class(classes, key=key)
    quantile = (rank + chance) / np.bincount(classes)[classes]
    held = np.zeros(len(classes), dtype=bool)
    held[np.argsort(quantile, kind="stable")[: round(fraction * len(classes))]] = True
    return examples.subset(pick(~held)), examples.subset(pick(held))


def balanced_subset(examples: ExampleSet, size: int, *, key: int) -> ExampleSet:
    """Return `size` examples, as equal in class as the data allows; a smaller subset lies in a larger one."""
    if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= len(examples):
        raise UsageError(f"subset: expected a whole number from 1 to {len(examples)}, got {size!r}")
    rank, chance = rank_in_class(class_of(examples.labels), key=key)
    chosen = np.lexsort((chance, rank))[:size]
    return examples.subset(torch.from_numpy(np.sort(chosen)))


def imbalanced(examples: ExampleSet, ratio: float, num_classes: int, *, key: int) -> ExampleSet:
    """Return a long tail: class c keeps n_max * ratio**(-c/(C-1)) examples (Cui et al. 2019, sec. 5.1)."""
    if not (np.isfinite(ratio) and ratio >= 1):
        raise UsageError(f"imbalance: expected a ratio of at least 1, got {ratio!r}")
    classes = class_of(examples.labels)
    profile = float(ratio) ** (-np.arange(num_classes) / max(num_classes - 1, 1))
    keep = np.maximum(1, np.rint(np.bincount(classes, minlength=num_classes).max() * profile))
    rank, _ = rank_in_class(classes, key=key)
    return examples.subset(pick(rank < keep[classes]))


def noisy_labels(examples: ExampleSet, rate: float, num_classes: int, *, key: int) -> ExampleSet:
    """Return the examples with each label, with probability `rate`, moved to a uniform other class."""
    if not 0 <= rate <= 1:
        raise UsageError(f"label_noise: expected a probability from 0 to 1, got {rate!r}")
    if examples.labels.ndim != 1:
        raise DataError("label_noise: expected one class a label, got probabilities; leave label_noise at 0")
    draw = uniforms(examples.ids, 2, key=key)
    labels = class_of(examples.labels)
    other = (labels + 1 + (draw[:, 1] * (num_classes - 1)).astype(np.int64)) % num_classes
    return examples.relabel(torch.from_numpy(np.where(draw[:, 0] < rate, other, labels)))
