"""Comparisons: to the bit unless a tolerance is named. Each `assert_*` holds an assert."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn


def gradients(loss: Tensor, model: nn.Module) -> list[Tensor]:
    """Return fresh gradients of `loss` for all parameters of `model`, by a real backward pass."""
    model.zero_grad(set_to_none=True)
    loss.backward()
    return [torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in model.parameters()]


def same(first: Sequence[Tensor], second: Sequence[Tensor]) -> bool:
    """Tell whether two lists of tensors are equal to the bit."""
    return len(first) == len(second) and all(map(torch.equal, first, second))


def assert_same(first: Sequence[Tensor], second: Sequence[Tensor]) -> None:
    assert len(first) == len(second)
    for index, (one, other) in enumerate(zip(first, second, strict=True)):
        assert torch.equal(one, other), f"tensor {index} differs by up to {(one - other).abs().max()}"


def assert_different(first: Sequence[Tensor], second: Sequence[Tensor]) -> None:
    """The negative control: what was broken must show."""
    assert not same(first, second)


def assert_close(first: Sequence[Tensor], second: Sequence[Tensor], *, relative: float) -> None:
    """Compare within `relative` of the largest value of each tensor."""
    assert len(first) == len(second)
    for index, (one, other) in enumerate(zip(first, second, strict=True)):
        assert one.shape == other.shape
        error, scale = (one - other).abs().max(), other.abs().max().clamp_min(1e-30)
        assert error <= relative * scale, f"tensor {index}: relative error {error / scale:.2e}"


def hooks_in(model: nn.Module) -> int:
    """Count every hook of every module."""
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return sum(len(getattr(module, kind)) for module in model.modules() for kind in kinds)


def global_states() -> tuple[Any, ...]:
    """Return the state of the global generators of Python, numpy and torch."""
    name, keys, position, has_gauss, cached = np.random.get_state()  # noqa: NPY002  (read, not drawn from)
    return (
        random.getstate(),
        (name, keys.tobytes(), position, has_gauss, cached),
        torch.get_rng_state().tolist(),
    )


@contextmanager
def assert_global_generators_untouched() -> Iterator[None]:
    before = global_states()
    yield
    assert global_states() == before, "a global generator was moved"


def flat(tensors: Iterable[Tensor]) -> Tensor:
    """Return all values in one vector."""
    return torch.cat([tensor.reshape(-1) for tensor in tensors])
