"""The Jensen-Shannon divergence between the predictions for several views of a batch."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from nfm.errors import ShapeError, UsageError


def jensen_shannon(*logits: Tensor) -> Tensor:
    """Return the mean over examples of mean_i KL(p_i || M), where M is the mean of the p_i = softmax(logits_i).

    Each of `logits` is [n, classes]. It is 0 for equal predictions and at most the log of their number
    (Hendrycks et al. 2020, equation 2).

    >>> sure = torch.tensor([[99.0, -99.0]])
    >>> round(float(jensen_shannon(sure, -sure)), 4) == round(math.log(2), 4)
    True
    """
    log_p = torch.stack(
        [F.log_softmax(each, dim=1, dtype=torch.promote_types(each.dtype, torch.float32)) for each in logits]
    )
    log_mean = torch.logsumexp(log_p, dim=0) - math.log(len(logits))
    return (log_p.exp() * (log_p - log_mean)).sum(2).mean()


def split_views(output: Any, views: int, size: int) -> tuple[Tensor, ...]:
    """Return the logits of each view of what the network made of them all, one after another."""
    if not isinstance(output, Tensor) or output.ndim != 2 or len(output) != views * size:
        told = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
        raise ShapeError(f"expected logits [{views * size}, classes] to compare the views by, got {told}")
    return output.split(size)


def check_factor(jsd: float) -> float:
    """Return the factor of the divergence in the loss, finite and 0 or greater."""
    if isinstance(jsd, bool) or not isinstance(jsd, int | float) or not 0 <= jsd < math.inf:
        raise UsageError(f"jsd: expected a finite factor, 0 or greater, got {jsd!r}")
    return float(jsd)
