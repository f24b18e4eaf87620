"""The processes of one run: who am I, what do all of us say. One process is the ordinary case."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from nfm.errors import EnvironmentProblem, UsageError

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Ranks:
    """This process among `world` of them, and the device it computes on."""

    rank: int = 0
    world: int = 1
    device: torch.device = CPU

    @property
    def first(self) -> bool:
        """Tell whether this is the process that writes."""
        return self.rank == 0

    def summed(self, values: Tensor) -> Tensor:
        """Return `values` added up over all processes."""
        if self.world > 1:
            values = values.to(self.device)
            dist.all_reduce(values)
        return values.cpu()

    def agree(self, name: str, text: str) -> None:
        """Refuse to go on if `text` is not the same in all processes."""
        if self.world == 1:
            return
        told: list[str | None] = [None] * self.world
        dist.all_gather_object(told, text)
        if len(set(told)) > 1:
            raise UsageError(f"{name}: expected the same in all {self.world} processes, got {told}")


def pick_device(name: str) -> torch.device:
    """Return the device called `name` (``auto``: CUDA where there is one); never another in its place."""
    cuda = torch.cuda.is_available()
    if name == "auto":
        return torch.device("cuda" if cuda else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UsageError(f"device: expected auto, cpu, cuda or cuda:N, got {name!r}") from None
    if device.type == "cuda" and not cuda:
        raise EnvironmentProblem(
            f"device: {name!r} was asked for, this machine has no CUDA; use --device cpu"
        )
    return device


@contextmanager
def joined(device: str = "auto") -> Iterator[Ranks]:
    """Join the processes that torchrun started, if it did; leave them at the end."""
    world_text, rank_text = os.environ.get("WORLD_SIZE"), os.environ.get("RANK")
    if (world_text is None) != (rank_text is None):
        raise EnvironmentProblem("expected both RANK and WORLD_SIZE or neither; start with torchrun")
    chosen = pick_device(device)
    if world_text is None or rank_text is None:
        yield Ranks(device=chosen)
        return
    if chosen.type == "cuda":
        chosen = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(chosen)
    dist.init_process_group("nccl" if chosen.type == "cuda" else "gloo")
    try:
        yield Ranks(int(rank_text), int(world_text), chosen)
    finally:
        dist.destroy_process_group()
