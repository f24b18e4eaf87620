"""What the method costs: one training step over one of plain training, on the paper's networks.

One row sets plain training against itself: what it differs from 1, the machine does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import nn

from benchmarks.networks import BATCH, Work, preact_resnet18, training, vit_lite
from benchmarks.side_by_side import Ratio, compare, compare_all
from nfm.method.presets import preset

SCHEMES, PLAIN = ("manifold_mixup", "nfm"), "erm"
NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[str, ...], int]] = {
    "PreActResNet-18": (lambda: preact_resnet18(1.0), SCHEMES, 7),
    "PreActResNet-18 of width 1/4": (lambda: preact_resnet18(0.25), (*SCHEMES, PLAIN), 25),
    "ViT-Lite-7/4": (vit_lite, SCHEMES, 11),
}  # how to build it, whose steps, rounds


def _step(model: nn.Module, scheme: str) -> Work:
    method = preset(scheme)
    return training(model, lambda model, x, y: method(model, x, y).loss, steps=1)


def measure() -> Iterator[Ratio]:
    """Yield the ratios."""
    for name, (build, schemes, rounds) in NETWORKS.items():
        model = build()  # one for all: nothing but the scheme differs
        ours = {
            f"{scheme} step / erm step, {name}, batch {BATCH}": _step(model, scheme) for scheme in schemes
        }
        yield from compare_all(ours, _step(model, PLAIN), rounds=rounds)
    last = preact_resnet18(0.25).to(memory_format=torch.channels_last)  # its first layer makes the batch so
    name = "channels_last step / contiguous step, nfm, width 1/4"
    yield compare(name, _step(last, "nfm"), _step(preact_resnet18(0.25), "nfm"), rounds=9)
