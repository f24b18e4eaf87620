"""What the method costs: one training step over one of plain training, on the paper's networks.

Steps go through their networks in step, each round with networks changed about, in processes that keep freed memory as
the command line does. One row sets plain training against itself: what it differs from 1, the machine does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import nn

from benchmarks.lockstep import Lockstep
from benchmarks.networks import BATCH, Loss, preact_resnet18, sgd, training, vit_lite
from benchmarks.side_by_side import Ratio, Turns, compare, counted, in_processes
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
    for network, (_, schemes, _) in NETWORKS.items():
        (*ours, plain), left_out = in_processes(PROCESSES, _in_step, network, begin=keep_freed_memory)
        for scheme, own in zip(schemes, ours, strict=True):
            name = f"{scheme} step / {PLAIN} step, {network}, batch {BATCH}"
            yield Ratio.of(name, list(zip(own, plain, strict=True)), left_out=left_out)
    last = preact_resnet18(0.25).to(memory_format=torch.channels_last)  # its first layer makes the batch so
    name = "channels_last step / contiguous step, nfm, width 1/4"
    changed, usual = (training(model, _loss("nfm"), steps=1) for model in (last, preact_resnet18(0.25)))
    yield compare(name, changed, usual, rounds=9)
