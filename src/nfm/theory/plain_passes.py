"""Forward passes by operations that can be differentiated forward and twice, in place of the fused ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from nfm.method.dry_run import evaluation


@contextmanager
def plain_passes(model: nn.Module) -> Iterator[None]:
    """Run `model` in evaluation mode without fused attention, transformer layers or recurrences; put all back."""
    with ExitStack() as stack:
        stack.enter_context(evaluation(model))
        stack.enter_context(sdpa_kernel(SDPBackend.MATH))
        stack.enter_context(_plain_transformers())
        if any(
            isinstance(module, nn.RNNBase) for module in model.modules()
        ):  # convolutions need the fast ones
            stack.enter_context(_without(torch.backends.mkldnn))
            stack.enter_context(_without(torch.backends.cudnn))
        yield


@contextmanager
def _plain_transformers() -> Iterator[None]:
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


@contextmanager
def _without(backend: Any) -> Iterator[None]:
    # Not by the `flags` of the backend: those of mkldnn set, and warn of, TF32 too.
    before = backend.enabled
    backend.enabled = False
    try:
        yield
    finally:
        backend.enabled = before
