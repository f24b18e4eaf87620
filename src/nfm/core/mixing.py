"""Mixing: the batch with a permuted copy of itself, and the loss with the labels mixed alike."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nfm.core.lasting import lasting
from nfm.core.onlookers import in_a_mode, in_a_transform
from nfm.core.structure import map_tensors, tensors_in
from nfm.errors import ShapeError, UsageError

Criterion = Callable[[Any, Any], Tensor]


class Pairing:
    """Who is mixed with whom, and how much: `partner` [n], `weight` of one's own part, [] or [n].

    `number` is the one weight of all, None where each example has its own.
    """

    def __init__(self, partner: Tensor, weight: Tensor | float) -> None:
        self.partner, self._given = partner, weight
        self.size = partner.shape[0]  # sooner than torch's len()
        self.number = None if isinstance(weight, Tensor) and weight.ndim else float(weight)

    def __len__(self) -> int:
        return self.size

    def __reduce__(self) -> tuple[type[Pairing], tuple[Tensor, Tensor | float]]:
        """Leave out of a copy what can be made again."""
        return Pairing, (self.partner, self._given)

    @functools.cached_property
    @lasting
    def weight(self) -> Tensor:
        """The weight as a tensor: a step of the usual kind needs the number alone."""
        given = self._given
        return given if isinstance(given, Tensor) else torch.tensor(given, dtype=torch.float64, device="cpu")

    @property
    def per_sample(self) -> bool:
        """Tell whether each example has a weight of its own."""
        return self.number is None

    @property
    def unmixed(self) -> bool:
        """Tell whether every example stays as it is."""
        return self.number == 1

    @functools.cached_property
    @lasting
    def inverse(self) -> Tensor:
        """The permutation back [n]: example inverse[i] was mixed with example i."""
        return torch.argsort(self.partner)

    @functools.cached_property
    @lasting
    def both(self) -> Tensor:
        """The places of each example and of its partner [n, 2]."""
        return torch.stack([torch.arange(self.size, device="cpu"), self.partner], 1)

    @functools.cached_property
    @lasting
    def shares(self) -> Tensor:
        """What the scores of an example and of its partner count in a mean loss of one weight [2], float32."""
        own = self.number or 0.0
        return torch.tensor([own, 1 - own], dtype=torch.float32, device="cpu") / -self.size

    def weighted(self, weight: float) -> Pairing:
        """Return the same pairs under another weight."""
        other = Pairing(self.partner, weight)
        other.both = self.both
        return other

    def parts(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Return the parts of the example itself and of its partner, [1] or [n], rounded to `dtype`."""
        own = self.weight.to(dtype).reshape(-1)
        return own, 1 - own


def mix(h: Tensor, pairing: Pairing) -> Tensor:
    """Return weight * h + (1 - weight) * h[partner], example by example; exact at weights 0 and 1."""
    check_batch(h, len(pairing))
    if pairing.unmixed:
        return h
    own, other = (against(part, h) for part in pairing.parts(h.dtype))
    return own * h + other * h[pairing.partner.to(h.device)]


def mix_transposed(g: Tensor, pairing: Pairing) -> Tensor:
    """Return the gradient of `mix` for the gradient `g` of its output: the transposed map."""
    check_batch(g, len(pairing))
    if pairing.unmixed:
        return g
    own, other = (against(part, g) for part in pairing.parts(g.dtype))
    return own * g + (other * g)[pairing.inverse.to(g.device)]


def check_batch(h: Tensor, expected: int) -> None:
    """Refuse a tensor whose dim 0 is not the batch."""
    if h.ndim == 0 or h.shape[0] != expected:
        raise ShapeError(f"expected a batch of {expected} in dim 0, got shape {tuple(h.shape)}")


def against(weight: Tensor, h: Tensor) -> Tensor:
    """Return `weight`, one or one an example, in a shape and dtype to multiply the features `h` by."""
    return weight.to(device=h.device, dtype=h.dtype).reshape(-1, *[1] * (h.ndim - 1))


def partners_of(y: Any, pairing: Pairing) -> Any:
    """Return y[partner]; `y` is a tensor or a structure of them, each with the batch in dim 0."""
    for tensor in tensors_in(y):
        check_batch(tensor, len(pairing))
    return _of_partners(y, pairing)


def _of_partners(y: Any, pairing: Pairing) -> Any:
    if not isinstance(y, Tensor):
        return map_tensors(lambda tensor: _of_partners(tensor, pairing), y)
    return y.index_select(0, pairing.partner if y.is_cpu else pairing.partner.to(y.device))


def mixed_loss(criterion: Criterion, output: Any, y: Any, pairing: Pairing) -> Tensor:
    """Return weight * criterion(output, y) + (1 - weight) * criterion(output, y[partner]).

    The *loss* is mixed, so any criterion will do; a term with weight 0 is not computed (0 * inf is NaN).
    Where one of both is infinite the mixture may be NaN: it is one interpolation, not a sum.
    With one weight an example, the criterion must be able to tell one loss an example: it takes
    ``reduction="none"``, has a `reduction` attribute, or returns one value an example itself.
    """
    _check_labels(y, pairing.size)
    weight = pairing.number
    if weight is None:
        return _mixed_loss_per_sample(criterion, output, y, pairing)
    if weight == 1:
        return criterion(output, y)
    if weight == 0:
        return criterion(output, _of_partners(y, pairing))
    if criterion is F.cross_entropy and _of_classes(output, y):
        # What both have in common is done once: of many classes, the biggest tensor.
        criterion, output = F.nll_loss, output.log_softmax(1)
        loss = _mixed_at_once(output, y, pairing)
        if loss is not None:
            return loss
    # One operation, not three
    return torch.lerp(criterion(output, _of_partners(y, pairing)), criterion(output, y), weight)


def _mixed_at_once(scores: Tensor, y: Tensor, pairing: Pairing) -> Tensor | None:
    """Return the mixed negative log-likelihood of the usual labels, one class an example; None for others.

    It takes half as many operations as two losses. A label that is no class, such as one to be ignored, is refused
    where it is looked up.
    """
    usual = scores.ndim == 2 and y.ndim == 1 and scores.dtype == torch.float32 and y.dtype == torch.int64
    if not (usual and scores.is_cpu and y.is_cpu and scores.shape[0] == y.shape[0] > 0):
        return None
    if torch.compiler.is_compiling() or in_a_mode() or in_a_transform():
        return None
    try:
        picked = scores.gather(1, y.take(pairing.both))
    except RuntimeError:
        return None
    return (picked * pairing.shares).sum()


def _of_classes(output: Any, y: Any) -> bool:
    """Tell whether the cross-entropy of `output` is the negative log-likelihood of its log-softmax."""
    tensors = isinstance(output, Tensor) and isinstance(y, Tensor)
    return tensors and output.ndim > 1 and not y.is_floating_point()


def _check_labels(y: Any, size: int) -> None:
    if isinstance(y, Tensor):
        check_batch(y, size)
        return
    labels = list(tensors_in(y))
    if not labels and y is not None:
        raise ShapeError(f"expected labels as tensors with the batch in dim 0, got {type(y).__name__}")
    for tensor in labels:
        check_batch(tensor, size)


def _mixed_loss_per_sample(criterion: Criterion, output: Any, y: Any, pairing: Pairing) -> Tensor:
    each = unreduced(criterion)
    own = _weighted_sum(each, output, y, pairing.weight)
    others = _weighted_sum(each, output, _of_partners(y, pairing), 1 - pairing.weight)
    total: Tensor = own + others  # type: ignore[assignment]  # one of them is a tensor
    return total / _normaliser(criterion, each, output, y)


def _weighted_sum(each: Criterion, output: Any, y: Any, weight: Tensor) -> Tensor | float:
    """Return the weighted sum of the single losses, computing only those whose weight is not 0."""
    rows = weight.nonzero().squeeze(1)
    if len(rows) == 0:
        return 0.0
    losses = each(_rows(output, rows), _rows(y, rows))
    if losses.ndim == 0 or len(losses) != len(rows):
        raise UsageError(
            f"expected one loss an example (batch of {len(rows)}) from the criterion, got shape "
            f"{tuple(losses.shape)}; weights='sample' needs a criterion with reduction='none'"
        )
    return (against(weight[rows], losses) * losses).sum()


def unreduced(criterion: Criterion) -> Criterion:
    """Return `criterion` with one loss an example, where it can be asked for that."""
    if isinstance(criterion, nn.Module):
        if isinstance(getattr(criterion, "reduction", None), str):
            each = copy.copy(criterion)
            each.reduction = "none"  # type: ignore[assignment]
            return each
        return criterion
    try:
        parameters = inspect.signature(criterion).parameters
    except (TypeError, ValueError):
        return criterion
    if "reduction" not in parameters:
        return criterion
    return functools.partial(criterion, reduction="none")  # type: ignore[call-arg]


def _normaliser(criterion: Criterion, each: Criterion, output: Any, y: Any) -> Tensor | int:
    """Return what a mean over the batch divides by: ignored targets and class weights count.

    Partners are a permutation, so it is the same for both terms. It is read off the criterion itself at
    constant predictions: the sum of the single losses over their reduced value.
    """
    flat = map_tensors(torch.zeros_like, output)
    with torch.no_grad():
        single, reduced = each(flat, y), criterion(flat, y)
    if each is criterion or reduced == 0 or not torch.isfinite(reduced):
        return single.numel()
    return single.sum() / reduced


def _rows(structure: Any, rows: Tensor) -> Any:
    return map_tensors(lambda tensor: tensor[rows.to(tensor.device)], structure)


def soft_targets(y: Tensor, num_classes: int, pairing: Pairing) -> Tensor:
    """Return the mixed one-hot labels [n, num_classes] of the class indices `y` [n]."""
    return mix_targets(nn.functional.one_hot(y, num_classes).to(torch.get_default_dtype()), pairing)


def mix_targets(y: Tensor, pairing: Pairing) -> Tensor:
    """Return mixed floating-point targets: regression values, multi-hot labels, probabilities."""
    if not y.is_floating_point():
        raise ShapeError(
            f"expected floating-point targets to mix, got {y.dtype}; use soft_targets for classes"
        )
    return mix(y, pairing)
