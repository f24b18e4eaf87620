"""Several processes of one run, without an agent: each is told its rank, as torchrun would."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from nfm.errors import NFMError
from nfm.method.presets import preset
from nfm.train.fit import fit
from nfm.train.optim import Optimizer
from nfm.train.ranks import joined
from nfm.train.schedule import Schedule
from running import TINY, digits, network, start

WORLD = 2


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def flat(model: torch.nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


class Gathering:
    """A scheme that compares the parameters of all processes before every step, and keeps their draws."""

    def __init__(self, scheme: str, settings: dict[str, Any]) -> None:
        self.inner = preset(scheme)
        # steps in which the second process goes bad, gets a signal, breaks
        self.poison, self.signal_at = settings.pop("poison", None), settings.pop("signal_at", None)
        self.broken = settings.pop("broken", None)
        self.equal: list[bool] = []
        self.draws: list[list[Any]] = []

    def __repr__(self) -> str:
        return f"Gathering({self.inner!r})"

    def __call__(self, model: Any, x: Any, y: Any, *, criterion: Any, step: int) -> Any:
        own = flat(model)
        others = [torch.empty_like(own) for _ in range(dist.get_world_size())]
        dist.all_gather(others, own)
        self.equal.append(all(torch.equal(own, other) for other in others))
        if dist.get_rank() == 1:
            x = x * float("nan") if self.poison == step else x
            if self.broken == step:
                raise RuntimeError("out of memory")
            if self.signal_at == step:
                os.kill(os.getpid(), signal.SIGTERM)
        outcome = self.inner(model, x, y, criterion=criterion, step=step)
        self.draws.append([outcome.draw.site, float(outcome.draw.weight), *outcome.draw.partner.tolist()])
        return outcome


def run_rank(report: str, out: str | None, name: str, scheme: str, settings: dict[str, Any]) -> None:
    """Train as one of several processes; write what this one saw."""
    resume = settings.pop("resume", False)
    data = digits(settings.pop("size", 48), settings.pop("validation", 0.02))
    method = Gathering(scheme, settings)
    model = network(data, name)
    told: dict[str, Any] = {}
    code = 0
    try:
        with joined("cpu") as ranks:
            try:
                fit(
                    model, method, data, optimizer=Optimizer(lr=0.05), schedule=Schedule("cosine"), out=out,
                    resume=resume, ranks=ranks, **(TINY | settings),
                )  # fmt: skip
            finally:
                told |= {"equal": method.equal, "draws": method.draws, "weights": flat(model).tolist()}
                told["buffers"] = [value.tolist() for value in model.buffers()]
    except NFMError as error:
        told["error"] = f"{type(error).__name__}: {error}"
        code = error.exit_code
    Path(f"{report}.{os.environ['RANK']}").write_text(json.dumps(told))
    sys.exit(code)


def as_rank(environment: dict[str, str], work: Any, *args: Any) -> None:
    os.environ.update(environment)
    work(*args)


def start_ranks(
    report: Path, out: Path | None, *, name: str = "mlp", scheme: str = "nfm", world: int = WORLD,
    one: dict[str, Any] | None = None, **settings: Any,
) -> list[BaseProcess]:  # fmt: skip
    """Start the processes of a run; `one` are settings that only the second has."""
    port = free_port()
    return [
        start(
            as_rank,
            {
                "RANK": str(rank), "WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo",
            },
            run_rank, str(report), None if out is None else str(out), name, scheme,
            settings | ((one or {}) if rank == 1 else {}),
        )
        for rank in range(world)
    ]  # fmt: skip


def end_all(processes: list[BaseProcess], seconds: float = 300.0) -> list[int | None]:
    """Wait for all; kill those that hang. Return their exit codes."""
    until = time.monotonic() + seconds
    for process in processes:
        process.join(max(0.0, until - time.monotonic()))
    codes = [process.exitcode for process in processes]
    for process in processes:
        if process.is_alive():
            process.kill()
            process.join()
    return codes


def train_ranks(report: Path, out: Path | None = None, **settings: Any) -> list[dict[str, Any]]:
    """Train with several processes to the end; return what each of them saw."""
    codes = end_all(start_ranks(report, out, **settings))
    assert None not in codes, "a process hangs"
    return [json.loads(Path(f"{report}.{rank}").read_text()) for rank in range(len(codes))]
