"""The map from a site to the outputs of any network, f_k: its Jacobian and its second derivatives.

The network runs in evaluation mode (batch norm by its running statistics), so examples are apart, and one
pass over a batch differentiates each example by its own features.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from nfm.core.structure import map_tensors, parts, tensors_in
from nfm.errors import NumericalError, ShapeError, SiteError
from nfm.method.dry_run import watching
from nfm.method.inputs import as_call, batch_size
from nfm.method.sites import INPUT, Site, resolve
from nfm.theory.plain_passes import plain_passes

PASS = 2**20  # features of one pass with derivatives: 64 examples of 16 channels of 32x32


@dataclass(frozen=True, eq=False)
class SiteMap:
    """f_k of a batch: `features` z [n, ...] at the site, `outputs` f_k(z) [n, K]; call it with other features."""

    model: nn.Module
    site: Site
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    weights: dict[str, Tensor]
    features: Tensor
    outputs: Tensor

    def __len__(self) -> int:
        return len(self.features)

    @property
    def size(self) -> int:
        """The number of features of one example, d_k."""
        return self.features[0].numel()

    @property
    def batch(self) -> int:
        """How many examples one pass with derivatives should take."""
        return max(1, PASS // self.size)

    def __call__(self, h: Tensor) -> Tensor:
        """Return f_k(h) [n, K]: the rest of the network on features `h` [n, ...] of these examples."""
        with self._running(h):
            output = torch.func.functional_call(self.model, self.weights, self.args, self.kwargs)
        return as_outputs(output, len(self), self.site.name)

    @contextmanager
    def _running(self, h: Tensor) -> Iterator[None]:
        # A clone, because a network may change its features in place.
        with plain_passes(self.model), watching(self.model, self.site, lambda _: h.clone()):
            yield

    def chunks(self, most: int) -> Iterator[SiteMap]:
        """Yield the map of at most `most` examples at a time."""
        for start in range(0, len(self), most):
            yield self.part(slice(start, start + most))

    def part(self, rows: slice) -> SiteMap:
        """Return the map of some of the examples."""
        count = len(self)

        def cut(value: Tensor) -> Tensor:
            return value[rows] if value.ndim and len(value) == count else value

        return replace(
            self, args=map_tensors(cut, self.args), kwargs=map_tensors(cut, self.kwargs),
            features=self.features[rows], outputs=self.outputs[rows],
        )  # fmt: skip

    def jacobian(self) -> Tensor:
        """Return the derivative of each output by the example's own features, [n, K, ...]."""
        with differentiating(self.site.name):
            pull = torch.func.vjp(self, self.features)[1]
            rows = []
            for output in range(self.outputs.shape[1]):
                ones = torch.zeros_like(self.outputs)
                ones[:, output] = 1
                rows.append(pull(ones)[0].detach())
        return torch.stack(rows, 1)

    def push(self, direction: Tensor) -> Tensor:
        """Return the derivative along `direction` [n, ...] of each example: J v [n, K]."""
        with differentiating(self.site.name):
            return torch.func.jvp(self, (self.features,), (direction,))[1].detach()

    def pull(self, weights: Tensor) -> Tensor:
        """Return J^T w [n, ...] for weights w [n, K] of the outputs."""
        with differentiating(self.site.name):
            return torch.func.vjp(self, self.features)[1](weights)[0].detach()

    def curvature(self, weights: Tensor, direction: Tensor) -> Tensor:
        """Return v^T (sum_c w_c Hessian of f_c) v [n], by one Hessian-vector product."""

        def weighted(h: Tensor) -> Tensor:
            return (weights * self(h)).sum()

        with differentiating(self.site.name):
            product = torch.func.jvp(torch.func.grad(weighted), (self.features,), (direction,))[1]
        return (product * direction).flatten(1).sum(1).detach()


def site_map(model: nn.Module, x: Any, *, site: str) -> SiteMap:
    """Return f_k at `site` for the inputs `x` (a tensor, a tuple or a mapping of them); refuse a bad site."""
    found = resolve(model, (site,))
    if len(found) != 1:
        raise SiteError(f"expected one site, {site!r} means {len(found)}: {', '.join(found)}")
    (place,) = found.values()
    return _map_at(model, x, place)


def input_map(model: nn.Module, x: Any) -> SiteMap:
    """Return the network as a map of its own input, before any normalisation inside it."""
    return _map_at(model, x, Site(INPUT, ""))


def _map_at(model: nn.Module, x: Any, place: Site) -> SiteMap:
    args, kwargs = as_call(map_tensors(Tensor.detach, x))
    size = batch_size(args, kwargs)
    weights = {name: value.detach() for name, value in model.named_parameters()}
    seen: list[Tensor] = []

    def keep(h: Tensor) -> Tensor:
        seen.append(h.detach().clone())
        return h

    with torch.no_grad(), _taking(model, x), plain_passes(model), watching(model, place, keep):
        output = torch.func.functional_call(model, weights, args, kwargs)
    _check_features(seen, place.name, size)
    return SiteMap(
        model, place, args, kwargs, weights, seen[0], as_outputs(output, size, place.name).detach()
    )  # fmt: skip


@contextmanager
def _taking(model: nn.Module, x: Any) -> Iterator[None]:
    """Tell a failed pass by the inputs that the network was given: mostly they are of another type or shape."""
    try:
        yield
    except RuntimeError as error:
        given = ", ".join(f"{tensor.dtype} {tuple(tensor.shape)}" for tensor in tensors_in(x))
        kinds = sorted({str(value.dtype) for value in model.parameters()})
        raise ShapeError(
            f"the forward pass of {type(model).__name__} failed on inputs of {given} (its parameters are of "
            f"{', '.join(kinds) or 'no type'}): {str(error).splitlines()[0]}; give inputs as in training"
        ) from error


def as_outputs(output: Any, size: int, site: str) -> Tensor:
    """Return the outputs [n, K] among what a network returned: a tensor, or its part called logits."""
    if not isinstance(output, Tensor):
        named = dict(parts(output))
        tensors = [named["logits"]] if "logits" in named else list(tensors_in(output))
        if len(tensors) != 1:
            raise ShapeError(
                f"expected one tensor of outputs [{size}, K], or a part called logits, got "
                f"{type(output).__name__} with {len(tensors)} tensors"
            )
        (output,) = tensors
    outputs: Tensor = output[:, None] if output.ndim == 1 else output
    if outputs.ndim != 2 or len(outputs) != size or not outputs.is_floating_point():
        raise ShapeError(
            f"expected floating-point outputs [{size}, K] behind site {site!r}, got {output.dtype} of shape "
            f"{tuple(output.shape)}; wrap the network so that it returns one row of class scores an example"
        )
    return outputs


def _check_features(seen: list[Tensor], site: str, size: int) -> None:
    if len(seen) != 1:
        raise SiteError(
            f"expected site {site!r} to fire exactly once a forward pass, it fired {len(seen)} times"
        )
    (h,) = seen
    if not h.is_floating_point() or h.ndim == 0 or len(h) != size:
        raise SiteError(
            f"site {site!r} does not carry the batch: expected {size} in dim 0 of a floating-point tensor, got "
            f"{h.dtype} of shape {tuple(h.shape)}"
        )
    if not torch.isfinite(h).all():
        raise NumericalError(f"expected finite features at site {site!r}, got NaN or infinity")


@contextmanager
def differentiating(site: str) -> Iterator[None]:
    """Tell a failed derivative as a property of the network behind `site`."""
    _load_forward_mode()
    try:
        yield
    except (RuntimeError, NotImplementedError) as error:
        raise SiteError(
            f"the network behind site {site!r} cannot be differentiated: {str(error).splitlines()[0]}; "
            "replace the operation, or choose a site behind it"
        ) from error


@functools.cache
def _load_forward_mode() -> None:
    """Let torch compile its own forward derivatives, which warns of `torch.jit.script` when it is first done."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.func.jvp(torch.sin, (torch.zeros(1),), (torch.ones(1),))
