"""Register an operator that is affine in its feature: with a fake, a gradient, and the gradient of that.

It is called as (x, numbers, key, *settings): everything random in it is derived from these two tensors, so nothing
else is kept for the backward pass. The functions behind it take them as `Arguments`.

The gradient of an affine map is its transposed linear part, which is an operator of its own, and whose gradient is the
linear part again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from nfm.core.arguments import Arguments
from nfm.core.onlookers import watched

UNSTAMPED = -1  # the serial number of a run that no choice asked for


class Affine(NamedTuple):
    """An operator and its transpose as torch knows them, and `run`: the operator by the shortest way."""

    operator: Any
    transposed: Any
    run: Callable[..., Tensor]


def register_affine(
    name: str,
    forward: Callable[..., Tensor],
    transposed: Callable[..., Tensor],
    *,
    settings: str,
    linear_part: Callable[[Tensor], Tensor] = lambda numbers: numbers,
) -> Affine:
    """Register `nfm::name` and `nfm::name_transposed`.

    `settings` are further arguments in the schema's language; `linear_part` returns the numbers of the same map
    without its constant part.
    """
    apply, transpose = (
        torch.library.custom_op(
            f"nfm::{full}", _of_tensors(function), mutates_args=(),
            schema=f"(Tensor x, Tensor numbers, Tensor key, {settings}) -> Tensor",
        )
        for full, function in ((name, forward), (f"{name}_transposed", transposed))
    )  # fmt: skip

    def backward(ctx: Any, g: Tensor) -> tuple[Any, ...]:
        numbers, key = ctx.saved_tensors
        return run_transposed(g, numbers, key, *ctx.settings), *[None] * (2 + len(ctx.settings))

    def backward_transposed(ctx: Any, g: Tensor) -> tuple[Any, ...]:
        numbers, key = ctx.saved_tensors
        pairing_key, noise_key, _ = key.unbind()
        unstamped = torch.stack([pairing_key, noise_key, torch.full_like(pairing_key, UNSTAMPED)])
        return run_of_tensors(g, linear_part(numbers), unstamped, *ctx.settings), *[None] * (
            2 + len(ctx.settings)
        )

    for operator, gradient in ((apply, backward), (transpose, backward_transposed)):
        operator.register_fake(_like_first)
        operator.register_autograd(gradient, setup_context=_keep)
    run_of_tensors = _short_way(apply, forward, backward)
    run_transposed = _short_way(transpose, transposed, backward_transposed)

    def run(x: Tensor, arguments: Arguments, *settings: Any) -> Tensor:
        """Run the operator; where no gradient is asked for and nobody looks on, without its tensors."""
        if watched(x) or (x.requires_grad and torch.is_grad_enabled()):
            return run_of_tensors(x, *arguments.tensors, *settings)
        return forward(x, arguments, *settings)

    return Affine(apply, transpose, run)


def _of_tensors(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return `function` with tensors in place of `Arguments`."""

    def run(x: Tensor, numbers: Tensor, key: Tensor, *settings: Any) -> Tensor:
        return function(x, Arguments.of_tensors(numbers, key), *settings)

    return run


def _like_first(x: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(x)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _, numbers, key, *ctx.settings = inputs
    ctx.save_for_backward(numbers, key)


def _short_way(
    operator: Callable[..., Tensor], function: Callable[..., Tensor], gradient: Callable[..., Any]
) -> Callable[..., Tensor]:
    """Return what runs `function` itself where only autograd looks on: torch's way to it is longer."""
    of_tensors = _of_tensors(function)

    def run(x: Tensor, *inputs: Any) -> Tensor:
        if watched(x):
            return operator(x, *inputs)
        if x.requires_grad and torch.is_grad_enabled():
            differentiable: Tensor = _Direct.apply(of_tensors, gradient, x, *inputs)
            return differentiable
        return of_tensors(x, *inputs)

    return run


class _Direct(torch.autograd.Function):
    """Run `function(x, *inputs)` with `gradient` for its backward pass: what the operator does, by a shorter way."""

    @staticmethod
    def forward(
        ctx: Any, function: Callable[..., Tensor], gradient: Callable[..., Any], *inputs: Any
    ) -> Tensor:
        output = function(*inputs)
        ctx.gradient = gradient
        _keep(ctx, inputs, output)
        return output

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Any, ...]:
        return None, None, *ctx.gradient(ctx, g)
