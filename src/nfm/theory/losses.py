"""Losses of the paper's form l(f, y) = h(f) - y f: the logistic loss (one output) and cross-entropy (several)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from nfm.errors import ShapeError


class LossForm(Protocol):
    """h and its derivatives at the outputs z [n, K], for targets y [n, K]."""

    def value(self, z: Tensor, y: Tensor) -> Tensor:
        """Return h(z) - y z of each example [n]."""

    def slope(self, z: Tensor, y: Tensor) -> Tensor:
        """Return h'(z) - y [n, K]."""

    def printed_slope(self, z: Tensor, y: Tensor) -> Tensor:
        """Return h'(z - y) [n, K], as Theorem 1 prints it."""

    def bend(self, z: Tensor, q: Tensor) -> Tensor:
        """Return q^T h''(z) q [n, m] of each column of q [n, K, m]."""


@dataclass(frozen=True)
class Logistic:
    """h(z) = log(1 + e^z), one output, labels 0 and 1 (Section 4)."""

    def value(self, z: Tensor, y: Tensor) -> Tensor:
        return (F.softplus(z) - y * z).squeeze(1)

    def slope(self, z: Tensor, y: Tensor) -> Tensor:
        return torch.sigmoid(z) - y

    def printed_slope(self, z: Tensor, y: Tensor) -> Tensor:
        return torch.sigmoid(z - y)

    def bend(self, z: Tensor, q: Tensor) -> Tensor:
        return (torch.sigmoid(z) * torch.sigmoid(-z)) * q.square().squeeze(1)


@dataclass(frozen=True)
class CrossEntropy:
    """h(z) = logsumexp(z), h''(z) = diag(p) - p p^T with p = softmax(z)."""

    def value(self, z: Tensor, y: Tensor) -> Tensor:
        return z.logsumexp(1) - (y * z).sum(1)

    def slope(self, z: Tensor, y: Tensor) -> Tensor:
        return z.softmax(1) - y

    def printed_slope(self, z: Tensor, y: Tensor) -> Tensor:
        return (z - y).softmax(1)

    def bend(self, z: Tensor, q: Tensor) -> Tensor:
        p = z.softmax(1)[:, :, None]
        return (p * (q - (p * q).sum(1, keepdim=True)).square()).sum(1)  # centred: no cancellation


def form_of(outputs: Tensor) -> LossForm:
    """Return the loss that outputs [n, K] are trained with: logistic for one output, else cross-entropy."""
    return Logistic() if outputs.shape[1] == 1 else CrossEntropy()


def targets_of(y: Tensor, outputs: Tensor) -> Tensor:
    """Return the targets [n, K] of class indices y [n]: 0 and 1 as they are (floats too), or one-hot.

    >>> targets_of(torch.tensor([0, 2]), torch.zeros(2, 3))
    tensor([[1., 0., 0.],
            [0., 0., 1.]])
    """
    count, classes = outputs.shape
    whole = not y.is_complex() and (
        not y.is_floating_point() or (classes == 1 and bool((y == y.round()).all()))
    )
    if y.shape != (count,) or not whole:
        kind = "labels 0 and 1" if classes == 1 else "integer class indices"
        raise ShapeError(f"expected {count} {kind}, got {y.dtype} of shape {tuple(y.shape)}")
    highest = max(classes, 2) - 1
    low, high = int(y.min()), int(y.max())
    if low < 0 or high > highest:
        raise ShapeError(f"expected classes from 0 to {highest} for {classes} outputs, got {low} to {high}")
    if classes == 1:
        return y.to(outputs)[:, None]
    return F.one_hot(y.long(), classes).to(outputs)
