"""Who looks on while an operator runs: the compiler, torch's transforms and modes, tracers, profilers."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def in_a_mode() -> bool:
    """Tell whether a mode sees every call of torch, and may answer with tensors of its own (fake ones)."""
    try:
        return torch._C._len_torch_dispatch_stack() > 0
    except AttributeError:  # torch keeps this to itself, and may call it otherwise
        return True


def in_a_transform() -> bool:
    """Tell whether one of torch's function transforms or a tracer sees every call of torch."""
    try:
        return (
            torch._C._functorch.peek_interpreter_stack() is not None
            or torch._C._get_tracing_state() is not None
        )
    except AttributeError:
        return True


def watched(x: Tensor) -> bool:
    """Tell whether a call on `x` must go through torch's dispatcher: something besides autograd is to see it.

    >>> watched(torch.zeros(2))
    False
    >>> torch.func.vmap(lambda x: x + watched(x))(torch.zeros(2))
    tensor([1., 1.])
    """
    try:
        return (
            torch.compiler.is_compiling()
            or type(x) not in (Tensor, nn.Parameter)
            or in_a_mode()
            or torch._C._len_torch_function_stack() > 0
            or torch._C._autograd._profiler_enabled()
            or in_a_transform()
        )
    except AttributeError:  # torch keeps these to itself, and may call them otherwise
        return True
