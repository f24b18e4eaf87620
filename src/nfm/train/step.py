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
    """What one step made of the examples of all processes; the draw is this one's."""

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
        draw = self._accumulate(batch, step, total, stop)
        stopping, loss, correct = self._told(total)
        self.scaler.unscale_(self.optimizer)
        norm = float(self._clip())
        expected = self.scaler.is_enabled() and math.isfinite(loss)  # a scaler skips overflowed steps itself
        if not (math.isfinite(loss) and (math.isfinite(norm) or expected)):
            self._refuse(batch, step, loss, norm, draw)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return StepResult(loss, correct, total, norm, draw, stopping)

    def _accumulate(self, batch: Batch, step: int, total: int, stop: bool) -> Draw:
        """Add up the gradients of the parts of `batch`; return the draw of the last."""
        parts = self._parts(len(batch))
        loss = correct = 0.0
        draw = Draw.plain(len(batch))
        for index, (x, y) in enumerate(
            zip(batch.x.tensor_split(parts), batch.y.tensor_split(parts), strict=True)
        ):
            last = index == parts - 1
            micro = step * self.settings.accumulate + index
            key = fold(self.settings.seed, "layers", micro, self.ranks.rank)
            with lend_global(key, self.ranks.device), nullcontext() if last else self._unsynchronised():
                outcome = self._forward(x, y, micro)
                loss += outcome.loss.item() * len(x)
                correct += weighted_correct(outcome.output, y.to(self.ranks.device), outcome.draw)
                draw = outcome.draw
                if last:
                    self._tell(stop, loss, correct)
                # DDP takes the mean over ranks, whose parts of a batch may differ in size by one.
                share = len(x) * self.ranks.world / total
                self.scaler.scale(outcome.loss * share).backward()
        return draw

    def _parts(self, size: int) -> int:
        """Return into how many parts to cut `size` examples; a last batch of fewer is cut into fewer."""
        most, whole = self.settings.accumulate, self.settings.batch_size
        return min(most, math.ceil(size * self.ranks.world * most / whole))

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

    def _tell(self, stop: bool, loss: float, correct: float) -> None:
        """Begin to add up over all processes who stops, losses and hits, while the backward pass runs."""
        self._sums = torch.tensor([stop, loss, correct], dtype=torch.float64, device=self.ranks.device)
        self._telling = dist.all_reduce(self._sums, async_op=True) if self.ranks.world > 1 else None

    def _told(self, total: int) -> tuple[bool, float, float]:
        """Return whether to stop, the mean loss and the number of hits, of all processes."""
        if self._telling is not None:
            self._telling.wait()
        stop, loss, correct = self._sums.tolist()  # one NaN or infinity makes the sum one
        return stop > 0, loss / total, correct

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
