"""Refuse bad examples, by index, before anything is trained on them."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

from nfm.data.examples import Examples, ExampleSet
from nfm.errors import DataError

SUM_TOLERANCE = 1e-4  # of a row of label probabilities


def check_examples(examples: ExampleSet, num_classes: int, *, where: str = "examples") -> None:
    """Refuse empty data, lengths that differ, labels out of range, bad pixels; warn of empty classes.

    `where` names the data in the message.
    """
    if len(examples) == 0:
        raise DataError(f"{where}: expected at least one example, got none")
    if not len(examples) == len(examples.labels) == len(examples.ids):
        raise DataError(
            f"{where}: expected as many labels and ids as images ({len(examples)}), "
            f"got {len(examples.labels)} labels and {len(examples.ids)} ids"
        )
    if isinstance(examples, Examples):
        _check_images(examples.images, where)
    _check_labels(examples.labels, num_classes, where)


def _check_images(images: Tensor, where: str) -> None:
    layout = {torch.uint8: (4,), torch.float32: (2, 4)}.get(images.dtype, ())
    if images.ndim not in layout or 0 in images.shape:
        raise DataError(
            f"{where}: expected images uint8 (n,C,H,W) or vectors float32 (n,d), "
            f"got {images.dtype} {tuple(images.shape)}"
        )
    if images.dtype == torch.uint8:
        return
    _refuse_first(~torch.isfinite(images), images, "a finite number", where)
    if images.ndim == 4:
        _check_range(images, where)


def _check_range(images: Tensor, where: str) -> None:
    """Refuse float pixels outside [0,1], telling the likely reason from their range."""
    low, high = images.min().item(), images.max().item()
    if low >= 0 and high <= 1:
        return
    reason = (
        "they look like levels 0..255: store them as uint8" if low >= 0 else "they look normalised: undo it"
    )
    raise DataError(f"{where}: expected float pixels in [0,1], got {low:g} to {high:g}; {reason}")


def _check_labels(labels: Tensor, num_classes: int, where: str) -> None:
    if labels.is_floating_point() and labels.ndim == 2:
        return _check_probabilities(labels, num_classes, where)
    if labels.dtype != torch.int64 or labels.ndim != 1:
        raise DataError(
            f"{where}: expected labels int64 (n,) or probabilities (n,{num_classes}), "
            f"got {labels.dtype} {tuple(labels.shape)}"
        )
    _refuse_first(
        (labels < 0) | (labels >= num_classes), labels, f"a label from 0 to {num_classes - 1}", where
    )
    missing = (torch.bincount(labels, minlength=num_classes) == 0).nonzero().flatten().tolist()
    if missing:
        shown = ", ".join(map(str, missing[:10])) + (" ..." if len(missing) > 10 else "")
        warnings.warn(
            f"{where}: {len(missing)} of {num_classes} classes have no example: {shown}", stacklevel=3
        )
    return None


def _check_probabilities(labels: Tensor, num_classes: int, where: str) -> None:
    if labels.shape[1] != num_classes:
        raise DataError(f"{where}: expected label probabilities (n,{num_classes}), got {tuple(labels.shape)}")
    _refuse_first(~((labels >= 0) & (labels <= 1)), labels, "a label probability from 0 to 1", where)
    total = labels.sum(1)
    _refuse_first((total - 1).abs() > SUM_TOLERANCE, total, "label probabilities that sum to 1", where)


def _refuse_first(bad: Tensor, values: Tensor, expected: str, where: str) -> None:
    """Raise for the first example with a `bad` value, by its index."""
    if not bad.any():
        return
    place = tuple(bad.nonzero()[0].tolist())
    count = int(bad.flatten(1).any(1).sum()) if bad.ndim > 1 else int(bad.sum())
    raise DataError(
        f"{where}: expected {expected}, got {values[place].item():g} at index {place[0]} ({count} bad in all)"
    )
