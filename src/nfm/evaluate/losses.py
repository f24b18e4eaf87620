"""What an attack raises: one number an example from logits (B, K) and labels (B,), and its gradient."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from nfm.errors import UsageError
from nfm.evaluate.checks import Classifier, ask

Loss = Callable[[Tensor], Tensor]  # logits (B, K) -> (B,)
RANKED = 4  # classes that the targeted ratio needs


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Return -log softmax at the label."""
    return F.cross_entropy(logits, labels, reduction="none")


def margin(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the best other logit less the label's: above 0 the example is misclassified."""
    own = logits.gather(1, labels[:, None])
    return logits.scatter(1, labels[:, None], -torch.inf).amax(1) - own[:, 0]


def difference_of_logits_ratio(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the DLR loss, which no scaling of the logits can hide (Croce & Hein 2020, equation 6)."""
    ranked = _ranked(logits, 3)
    return margin(logits, labels) / (ranked[:, 0] - ranked[:, 2]).clamp(min=1e-12)


def targeted_ratio(logits: Tensor, labels: Tensor, targets: Tensor) -> Tensor:
    """Return the DLR loss towards `targets` (Croce & Hein 2020, equation 7)."""
    ranked = _ranked(logits, RANKED)
    gain = logits.gather(1, targets[:, None])[:, 0] - logits.gather(1, labels[:, None])[:, 0]
    return gain / (ranked[:, 0] - (ranked[:, 2] + ranked[:, 3]) / 2).clamp(min=1e-12)


def ascend(model: Classifier, x: Tensor, loss: Loss) -> tuple[Tensor, Tensor, Tensor]:
    """Return the loss of each example, its gradient in the pixels (0 where it is not finite), and the logits."""
    values, gradient, logits = differentiate(model, x, loss)
    return values, gradient.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0), logits


def differentiate(model: Classifier, x: Tensor, loss: Loss) -> tuple[Tensor, Tensor, Tensor]:
    """Return the loss of each example, its gradient in the pixels as it is, and the logits."""
    x = x.detach().requires_grad_()
    with torch.enable_grad():
        logits = ask(model, x)
        if not logits.requires_grad:
            raise UsageError(
                "expected a model with a gradient in its pixels, got none; use a black-box attack: square"
            )
        values = loss(logits)
        (gradient,) = torch.autograd.grad(values.sum(), x, materialize_grads=True)
    return values.detach(), gradient, logits.detach()


def _ranked(logits: Tensor, count: int) -> Tensor:
    if logits.shape[1] < count:
        raise UsageError(
            f"expected at least {count} classes for this loss, got {logits.shape[1]}; use loss='ce'"
        )
    return logits.topk(count, dim=1).values
