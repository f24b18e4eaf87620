"""Input mixup and CutMix beside other libraries: one training step over one of theirs, same network and batch.

The networks are small, so that a step shows what mixing costs: a step of a second would hide it. On a batch of
ImageNet's size memory decides; on one of CIFAR's size it is Python, on either side. Times of one and the same step vary
by a tenth on a shared machine, so a turn is the best of some steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.networks import Loss, Work, random_batch, small_network, training
from benchmarks.side_by_side import Ratio, compare
from nfm.errors import EnvironmentProblem
from nfm.method.schemes import scheme
from nfm.models.layers import conv_norm_relu
from nfm.models.torchvision_compat import import_torchvision


def _strided_network() -> nn.Module:
    """Return a network for 224 px that makes little of them soon."""
    first = nn.Conv2d(3, 16, 7, stride=4, padding=3)
    return nn.Sequential(
        first,
        nn.ReLU(),
        conv_norm_relu(16, 32, stride=2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, 1000),
    )


class Case(NamedTuple):
    """A batch, a network for it, and how often to measure."""

    side: int
    classes: int
    network: Callable[[], nn.Module]
    rounds: int
    best_of: int

    def step(self, loss: Loss) -> Work:
        """Return one training step of a network of its own."""
        batch = random_batch(self.side, self.classes)
        return training(self.network(), loss, steps=1, batch=batch)


CASES = (Case(224, 1000, _strided_network, 21, 1), Case(32, 10, small_network, 101, 3))


def measure() -> Iterator[Ratio]:
    """Yield the cost of a step of ours in units of each peer's."""
    for case in CASES:
        for peer, text, loss in _peers(case.classes):
            name = f"{text} step / {peer} step, 128x3x{case.side}x{case.side}, {case.classes:,} classes"
            works = case.step(_ours(text)), case.step(loss)
            yield compare(name, *works, rounds=case.rounds, best_of=case.best_of)


def _ours(text: str) -> Loss:
    method = scheme(text)
    return lambda model, x, y: method(model, x, y).loss


def _peers(classes: int) -> Iterator[tuple[str, str, Loss]]:
    """Yield (peer, our scheme, its step) for the mixing libraries that are installed; they mix labels to vectors."""

    def step(transform: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]) -> Loss:
        def run(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
            mixed, labels = transform(x, y)
            return F.cross_entropy(model(mixed), labels)

        return run

    try:
        import_torchvision("a comparison")  # first: timm needs one that can be imported
        from torchvision.transforms import v2
    except (EnvironmentProblem, ImportError, RuntimeError):
        print("torchvision is not installed: not compared with")
    else:
        yield "torchvision v2.MixUp", "mixup", step(v2.MixUp(num_classes=classes))
        yield "torchvision v2.CutMix", "cutmix", step(v2.CutMix(num_classes=classes))
    try:
        from timm.data import Mixup
    except (ImportError, RuntimeError):
        print("timm is not installed: not compared with")
    else:
        settings: dict[str, Any] = {"label_smoothing": 0.0, "num_classes": classes}
        yield "timm Mixup", "mixup", step(Mixup(mixup_alpha=1.0, cutmix_alpha=0.0, **settings))
        yield "timm CutMix", "cutmix", step(Mixup(mixup_alpha=0.0, cutmix_alpha=1.0, **settings))
