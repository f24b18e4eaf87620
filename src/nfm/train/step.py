"""One training step: forward and loss by the method, backward, a look at the numbers, the update."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor, nn

from nfm.core.draw import Draw
from nfm.data.batches import Batch
from nfm.errors import NumericalError
from nfm.method.feature_mixup import Outcome
from nfm.randomness import fold, lend_global
from nfm.train.accuracy import weighted_correct
from nfm.train.ranks import Ranks
from nfm.train.settings import Settings


class Method(Protocol):
    """What the trainer asks of a scheme: one call a batch, its draw keyed by `step`."""

    def __call__(self, model: nn.Module, x: Any, y: Any, *, criterion: Any, step: int) -> Outcome: ...


@dataclass(frozen=True)
class StepResult:
    """What one step made of the examples of this process."""

    loss: float
    correct: float
    size: int
    grad_norm: float
    draw: Draw
    stop: bool


class Stepper:
    """Everything a step needs: built once, called for each batch."""

    def __init__(
        self, forward: nn.Module, root: nn.Module, method: Method, criterion: Callable[..., Tensor],
        optimizer: torch.optim.Optimizer, settings: Settings, ranks: Ranks,
    ) -> None:  # fmt: skip
        self.forward, self.root, self.method, self.criterion = forward, root, method, criterion
        self.optimizer, self.settings, self.ranks = optimizer, settings, ranks
        self.parameters = [p for group in optimizer.param_groups for p in group["params"]]
        self.buffers = list(root.buffers())
        self.before = [buffer.clone() for buffer in self.buffers]
        self.scaler = torch.amp.GradScaler(ranks.device.type, enabled=settings.precision == "float16")

    def __call__(self, batch: Batch, step: int, total: int, *, stop: bool) -> StepResult:
        """Train on `batch`, this process's part of `total` examples; `stop` asks all processes to stop."""
        if self.buffers:
            torch._foreach_copy_(self.before, self.buffers)
        self.optimizer.zero_grad(set_to_none=True)
        loss, correct, draw, stop = self._accumulate(batch, step, total, stop)
        self.scaler.unscale_(self.optimizer)
        norm = float(self._clip())
        expected = self.scaler.is_enabled() and math.isfinite(loss)  # a scaler skips overflowed steps itself
        if not (math.isfinite(loss) and (math.isfinite(norm) or expected)):
            self._refuse(batch, step, loss, norm, draw)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return StepResult(loss, correct, len(batch), norm, draw, stop)

    def _accumulate(self, batch: Batch, step: int, total: int, stop: bool) -> tuple[float, float, Draw, bool]:
        parts = min(self.settings.accumulate, len(batch))
        loss = correct = 0.0
        draw = Draw.plain(len(batch))
        flags: Tensor | None = None
        for index, (x, y) in enumerate(zip(batch.x.chunk(parts), batch.y.chunk(parts), strict=True)):
            last = index == parts - 1
            micro = step * self.settings.accumulate + index
            with lend_global(fold(self.settings.seed, "layers", micro, self.ranks.rank), self.ranks.device):
                outcome = self._forward(x, y, micro)
                loss += outcome.loss.item() * len(x) / len(batch)
                correct += weighted_correct(outcome.output, y.to(self.ranks.device), outcome.draw)
                draw = outcome.draw
                if last:
                    flags = self._tell(stop, loss)
                # DDP takes the mean over ranks, whose parts of a batch may differ in size by one.
                share = len(x) * self.ranks.world / total
                with nullcontext() if last else self._unsynchronised():
                    self.scaler.scale(outcome.loss * share).backward()
        assert flags is not None
        stop, bad = self._told(flags)
        return (math.nan if bad and math.isfinite(loss) else loss), correct, draw, stop

    def _forward(self, x: Tensor, y: Tensor, micro: int) -> Outcome:
        device, settings = self.ranks.device, self.settings
        x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
        if settings.channels_last and x.ndim == 4:
            x = x.contiguous(memory_format=torch.channels_last)
        cast: AbstractContextManager[Any] = nullcontext()
        if settings.precision != "float32":
            cast = torch.autocast(device.type, getattr(torch, settings.precision))
        with cast:
            return self.method(self.forward, x, y, criterion=self.criterion, step=micro)

    def _unsynchronised(self) -> AbstractContextManager[Any]:
        wrapped = isinstance(self.forward, nn.parallel.DistributedDataParallel)
        return self.forward.no_sync() if wrapped else nullcontext()  # type: ignore[operator]

    def _tell(self, stop: bool, loss: float) -> Tensor:
        """Begin to tell the other processes of a stop or a bad loss, while the backward pass runs."""
        flags = torch.tensor([stop, not math.isfinite(loss)], dtype=torch.float32, device=self.ranks.device)
        self._telling = dist.all_reduce(flags, async_op=True) if self.ranks.world > 1 else None
        return flags

    def _told(self, flags: Tensor) -> tuple[bool, bool]:
        if self._telling is not None:
            self._telling.wait()
        stop, bad = (flags > 0).tolist()
        return stop, bad

    def _clip(self) -> Tensor:
        """Return the norm of the gradient, after clipping it if asked to."""
        if self.settings.clip:
            return nn.utils.clip_grad_norm_(self.parameters, self.settings.clip)
        gradients = [p.grad for p in self.parameters if p.grad is not None]
        return torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))

    def _refuse(self, batch: Batch, step: int, loss: float, norm: float, draw: Draw) -> None:
        """Undo the step and stop: nothing of it may reach the network or a checkpoint."""
        if self.buffers:
            torch._foreach_copy_(self.buffers, self.before)
        self.optimizer.zero_grad(set_to_none=True)
        ids = ", ".join(map(str, batch.ids[:8].tolist()))
        weight = f"{float(draw.weight):.6g}" if draw.weight.ndim == 0 else "one an example"
        raise NumericalError(
            f"step {step}: expected a finite loss and gradient, got loss {loss:g}, gradient norm {norm:g}; "
            f"site {draw.site!r}, weight {weight}, examples {ids}, ...; nothing was updated; "
            "lower the learning rate or the noise level, or clip gradients"
        )
