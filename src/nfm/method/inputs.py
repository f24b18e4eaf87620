"""The network's own input as a site: one tensor, several, or named ones."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from nfm.core.structure import tensors_in
from nfm.errors import ShapeError, SiteError
from nfm.method.sites import is_feature


def as_call(x: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments and keywords that `x` means: a tensor, a tuple or list of inputs, or a mapping."""
    if isinstance(x, Tensor):
        return (x,), {}
    if isinstance(x, Mapping):
        return (), dict(x)
    return tuple(x) if isinstance(x, tuple | list) else (x,), {}


def batch_size(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """Return the length of dim 0 of the first tensor among the inputs."""
    first = args[0] if args else None
    if not isinstance(first, Tensor) or not first.ndim:
        first = next((tensor for tensor in tensors_in((*args, *kwargs.values())) if tensor.ndim), None)
    if first is None:
        raise ShapeError("expected an input tensor with the batch in dim 0, got no tensor")
    size = first.shape[0]
    if size == 0:
        raise ShapeError(f"expected a batch of at least 1, got shape {tuple(first.shape)}")
    return size


def positional_names(model: nn.Module) -> tuple[str, ...]:
    """Return the names of the arguments of `model`'s forward that can be given by place."""
    return _positional_names(type(model).forward)


@functools.lru_cache
def _positional_names(forward: Callable[..., Any]) -> tuple[str, ...]:
    parameters = list(inspect.signature(forward).parameters.values())[1:]
    return tuple(p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD))


def mix_inputs(
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    names: Sequence[str] | None,
    apply: Callable[[Tensor, int], Tensor],
    *,
    positional: Sequence[str] | None = None,
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the inputs with those called `names` mixed; None means the one floating-point tensor.

    All share partners and weight, each has noise of its own; everything else is passed through.
    `positional` are the model's `positional_names`, if they are known already.
    """
    if names is None and not kwargs and len(args) == 1 and is_feature(args[0]):  # the usual case, sooner
        return (apply(args[0], 0),), kwargs
    positions = dict(enumerate(positional_names(model) if positional is None else positional))
    given = {positions.get(index, str(index)): value for index, value in enumerate(args)} | kwargs
    chosen = _chosen(model, given, names)
    mixed = {name: apply(given[name], stream) for stream, name in enumerate(chosen)}
    new_args = tuple(mixed.get(positions.get(index, str(index)), value) for index, value in enumerate(args))
    return new_args, {name: mixed.get(name, value) for name, value in kwargs.items()}


def _chosen(model: nn.Module, given: Mapping[str, Any], names: Sequence[str] | None) -> list[str]:
    features = [name for name, value in given.items() if is_feature(value)]
    if names is None:
        if len(features) != 1:
            kinds = ", ".join(f"{name}: {_kind(value)}" for name, value in given.items())
            raise SiteError(
                f"expected one floating-point tensor among the inputs of {type(model).__name__} to mix, got "
                f"{kinds}; name those to mix (inputs=({', '.join(map(repr, features or ['x']))},)), "
                "or use later sites"
            )
        return features
    for name in names:
        if name not in features:
            raise SiteError(
                f"expected a floating-point input {name!r} of {type(model).__name__}, got "
                f"{_kind(given.get(name))}; its floating-point inputs are: {', '.join(features) or 'none'}"
            )
    return list(names)


def _kind(value: Any) -> str:
    return f"{value.dtype} {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
