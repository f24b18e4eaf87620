"""What the method costs: one training step over one of plain training, on the paper's networks."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

from benchmarks.networks import BATCH, Work, preact_resnet18, training, vit_lite
from benchmarks.side_by_side import Ratio, compare
from nfm.method.presets import preset

NETWORKS = {
    "PreActResNet-18": (lambda: preact_resnet18(1.0), 1, 5),
    "PreActResNet-18 of width 1/4": (lambda: preact_resnet18(0.25), 4, 15),
    "ViT-Lite-7/4": (vit_lite, 1, 7),
}  # how to build it, steps a turn, rounds


def _steps(model: nn.Module, scheme: str, steps: int) -> Work:
    method = preset(scheme)
    return training(model, lambda model, x, y: method(model, x, y).loss, steps=steps)


def measure() -> Iterator[Ratio]:
    """Yield the ratios."""
    for name, (build, steps, rounds) in NETWORKS.items():
        plain = _steps(build(), "erm", steps)
        for scheme in ("manifold_mixup", "nfm"):
            ours = _steps(build(), scheme, steps)
            yield compare(f"{scheme} step / erm step, {name}, batch {BATCH}", ours, plain, rounds=rounds)
