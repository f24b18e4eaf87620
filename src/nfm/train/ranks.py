"""The processes of one run: who am I, what do all of us say. One process is the ordinary case."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from nfm.differing import differences
from nfm.errors import EnvironmentProblem, NFMError, UsageError

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Ranks:
    """This process among `world` of them, the device it computes on, and the process that started it, if told."""

    rank: int = 0
    world: int = 1
    device: torch.device = CPU
    parent: int | None = None

    @property
    def first(self) -> bool:
        """Tell whether this is the process that writes."""
        return self.rank == 0

    @property
    def orphaned(self) -> bool:
        """Tell whether the process that started this one is gone: nobody is left to end it."""
        return self.parent is not None and os.getppid() != self.parent

    def summed(self, values: Tensor) -> Tensor:
        """Return `values` added up over all processes."""
        if self.world > 1:
            values = values.to(self.device)
            dist.all_reduce(values)
        return values.cpu()

    def broadcast(self, tensors: list[Tensor]) -> None:
        """Overwrite `tensors` by those of the first process."""
        if self.world > 1:
            for tensor in tensors:
                dist.broadcast(tensor, src=0)

    def agree(self, name: str, facts: Mapping[str, Any]) -> None:
        """Refuse to go on if `facts` are not the same in all processes."""
        if self.world == 1:
            return
        told: list[Any] = [None] * self.world
        dist.all_gather_object(told, dict(facts))
        for rank, other in enumerate(told):
            differing = differences(told[0], other)
            if differing:
                shown = "; ".join(
                    f"{key}: {first!r} in process 0, {second!r} in process {rank}"
                    for key, (first, second) in differing.items()
                )
                raise UsageError(f"{name}: expected the same in all {self.world} processes, got {shown}")

    def first_does(self, work: Callable[[], None]) -> None:
        """Let the first process do `work`; an error of it is raised in all."""
        problem: list[NFMError | None] = [None]
        if self.first:
            try:
                work()
            except NFMError as error:
                problem = [error]
        if self.world > 1:
            dist.broadcast_object_list(problem, src=0)
        if problem[0] is not None:
            raise problem[0]


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
    importlib.import_module("torch._dynamo")  # as DDP will: imported later, it keeps the group past its end
    try:
        dist.init_process_group("nccl" if chosen.type == "cuda" else "gloo")
    except (ValueError, RuntimeError) as error:
        names = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
        given = ", ".join(f"{name}={os.environ.get(name, 'not set')}" for name in names)
        raise EnvironmentProblem(
            f"cannot join the other processes ({given}): {str(error).splitlines()[0]}; start with torchrun"
        ) from error
    try:
        yield Ranks(int(rank_text), int(world_text), chosen, parent=os.getppid())
    finally:
        dist.destroy_process_group()
