"""The gradient of a loss in the pixels, by a pass of its own that leaves no trace in the network."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Literal

import torch
from torch import Tensor, nn

from nfm.core.mixing import Criterion
from nfm.errors import UsageError
from nfm.method.dry_run import evaluation
from nfm.method.roots import forward_plain

Mode = Literal["eval", "train"]


def check_mode(mode: str) -> None:
    """Refuse a mode that a network does not have."""
    if mode not in ("eval", "train"):
        raise UsageError(f"mode: expected 'eval' or 'train', got {mode!r}")


@contextmanager
def probing(root: nn.Module, mode: Mode) -> Iterator[None]:
    """While inside, `root` is in `mode`; then its modes, its running statistics and the
    global generators are as they were.

    In ``eval`` batch norm uses its running statistics and dropout is off; in ``train`` it uses those of the batch.
    """
    with _generators_kept(root):
        if mode == "eval":
            with evaluation(root):
                yield
        else:
            with _buffers_kept(root), torch.enable_grad():
                yield


def _generators_kept(root: nn.Module) -> AbstractContextManager[None]:
    """Let dropout draw from the global generators, and set these back."""
    indices = {parameter.device.index for parameter in root.parameters() if parameter.is_cuda}
    return torch.random.fork_rng(sorted(indices))


@contextmanager
def _buffers_kept(root: nn.Module) -> Iterator[None]:
    buffers = list(root.buffers())
    before = [buffer.clone() for buffer in buffers]
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, value in zip(buffers, before, strict=True):
                buffer.copy_(value)


def pixel_gradient(root: nn.Module, x: Tensor, y: Any, criterion: Criterion) -> Tensor:
    """Return the gradient of the summed loss in `x`, float32; no parameter gets one.

    `root` is called below its wrappers, so processes do not wait for one another, and nothing is mixed.
    """
    x = x.detach().requires_grad_()
    loss = criterion(forward_plain(root, x), y)
    total = loss.sum() if loss.ndim else loss * len(x)  # one loss an example, or their mean
    if not loss.requires_grad:
        raise UsageError("expected a network with a gradient in its pixels, got none")
    (gradient,) = torch.autograd.grad(total, x)
    return gradient.float()
