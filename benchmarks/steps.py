"""What the method costs: one training step over one of plain training, on the paper's networks.

Steps go through their networks in step, each round with networks changed about, in processes that keep freed memory as
the command line does. One row sets plain training against itself: what it differs from 1, the machine does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import torch
from torch import nn

from benchmarks.lockstep import Lockstep
from benchmarks.networks import BATCH, Loss, preact_resnet18, sgd, training, vit_lite
from benchmarks.side_by_side import Ratio, Turns, compare, counted
from nfm.cli.heap import keep_freed_memory
from nfm.method.presets import preset

SCHEMES, PLAIN = ("manifold_mixup", "nfm"), "erm"
NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[str, ...], int]] = {
    "PreActResNet-18": (lambda: preact_resnet18(1.0), SCHEMES, 6),
    "PreActResNet-18 of width 1/4": (lambda: preact_resnet18(0.25), (*SCHEMES, PLAIN), 25),
    "ViT-Lite-7/4": (vit_lite, SCHEMES, 8),
}  # how to build it, whose steps beside those of plain training, rounds in a process
PROCESSES = 2  # in each of which memory lies elsewhere


def _loss(scheme: str) -> Loss:
    method = preset(scheme)
    return lambda model, x, y: method(model, x, y).loss


def _in_step(network: str) -> Turns:
    """Return how long a step of each scheme took in each round, that of plain training last."""
    build, schemes, rounds = NETWORKS[network]
    losses = [_loss(scheme) for scheme in (*schemes, PLAIN)]
    models = [build() for _ in losses]
    optimizers = [sgd(model) for model in models]
    lockstep = Lockstep(models)

    def round_of(number: int) -> list[float]:
        steps = []
        for place, loss in enumerate(losses):
            which = (place + number) % len(models)
            steps.append(training(models[which], loss, steps=1, optimizer=optimizers[which]))
        return lockstep.seconds(steps, first=number % len(steps))

    round_of(0)  # to warm up
    return counted(round_of, rounds=rounds)


def measure() -> Iterator[Ratio]:
    """Yield the ratios."""
    with ProcessPoolExecutor(
        1, mp_context=get_context("spawn"), max_tasks_per_child=1, initializer=keep_freed_memory
    ) as processes:
        for network, (_, schemes, _) in NETWORKS.items():
            measured = list(processes.map(_in_step, [network] * PROCESSES))
            (*ours, plain) = (
                [t for turns in measured for t in turns.seconds[way]] for way in range(len(schemes) + 1)
            )
            for scheme, own in zip(schemes, ours, strict=True):
                name = f"{scheme} step / {PLAIN} step, {network}, batch {BATCH}"
                pairs = list(zip(own, plain, strict=True))
                yield Ratio.of(name, pairs, left_out=sum(turns.left_out for turns in measured))
    last = preact_resnet18(0.25).to(memory_format=torch.channels_last)  # its first layer makes the batch so
    name = "channels_last step / contiguous step, nfm, width 1/4"
    ours, reference = (training(model, _loss("nfm"), steps=1) for model in (last, preact_resnet18(0.25)))
    yield compare(name, ours, reference, rounds=9)
