"""How long and how large a run would be, from a few steps of a copy of the network."""

from __future__ import annotations

import copy
import resource
import time
from dataclasses import dataclass
from typing import Any

import torch.nn.functional as F
from torch import nn

from nfm.data.batches import Batches
from nfm.data.examples import Augment, DataSet
from nfm.train.optim import Optimizer
from nfm.train.ranks import Ranks
from nfm.train.settings import Settings
from nfm.train.step import Method, Stepper

TRIED = 3  # steps; the first warms up and does not count


@dataclass(frozen=True)
class Estimate:
    """The size of a run; print it."""

    sites: str
    parameters: int
    trainable: int
    examples: int
    steps: int
    epochs: int
    seconds_per_step: float
    peak_bytes: int

    def __str__(self) -> str:
        hours = self.seconds_per_step * self.steps * self.epochs / 3600
        return (
            f"{self.sites}\n"
            f"parameters: {self.parameters:,}, trainable {self.trainable:,}\n"
            f"examples:   {self.examples:,} an epoch, {self.steps:,} steps, {self.epochs} epochs\n"
            f"time:       {self.seconds_per_step:.3f} s a step (of {TRIED - 1}), {hours:.2f} h in all\n"
            f"memory:     {self.peak_bytes / 2**20:,.0f} MiB at the peak of this process"
        )


def estimate(
    model: nn.Module, method: Method, data: DataSet, optimizer: Optimizer, settings: Settings,
    augment: Augment | None, ranks: Ranks,
) -> Estimate:  # fmt: skip
    """Train a copy of `model` for a few steps and return what the whole run would take."""
    batches = Batches(data.train, batch_size=settings.batch_size, augment=augment, seed=settings.seed)
    trial = copy.deepcopy(model).to(ranks.device)
    stepper = Stepper(
        trial, trial, method, F.cross_entropy, optimizer.build(trial), settings, Ranks(device=ranks.device)
    )
    times: list[float] = []
    for step, batch in zip(range(TRIED), batches.epoch(0), strict=False):
        began = time.perf_counter()
        stepper(batch, step, len(batch), stop=False)
        times.append(time.perf_counter() - began)
    return Estimate(
        sites=_sites(trial, method, batch.x[:4]),
        parameters=sum(p.numel() for p in model.parameters()),
        trainable=sum(p.numel() for p in model.parameters() if p.requires_grad),
        examples=len(data.train), steps=batches.steps_per_epoch, epochs=settings.epochs,
        seconds_per_step=min(times[1:] or times),
        peak_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    )  # fmt: skip


def _sites(model: nn.Module, method: Method, x: Any) -> str:
    return str(method.check(model, x)) if hasattr(method, "check") else repr(method)
