"""Input mixup and CutMix beside other libraries: one training step over one of theirs, same network and batch.

The network is small, so that a step shows what mixing costs: a step of a second would hide it. On a batch of
ImageNet's size memory decides; on one of CIFAR's size it is Python, on either side.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.networks import Loss, Work, random_batch, training
from benchmarks.side_by_side import Ratio, Turns, by_turns, in_processes
from nfm.cli.heap import keep_freed_memory
from nfm.errors import EnvironmentProblem
from nfm.method.schemes import scheme
from nfm.models.layers import conv_norm_relu
from nfm.models.torchvision_compat import import_torchvision

# Of images and labels: mixed ones, and label vectors
Mixing = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


def _network(classes: int) -> nn.Module:
    """Return a network that makes little of its pixels soon."""
    first, second = nn.Conv2d(3, 16, 7, stride=4, padding=3), conv_norm_relu(16, 32, stride=2)
    return nn.Sequential(
        first, nn.ReLU(), second, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, classes)
    )


class Case(NamedTuple):
    """The side and the classes of a batch, how often to measure, and in what processes each pair has of its own.

    In a process of several pairs a peer's big tensors come to lie in the big pages that ours asked for in the pair
    before. In a short step it would be chance whose tensors cost page faults: there nothing that is freed goes back to
    the system, and there are some processes, for in each of them memory lies elsewhere.
    """

    side: int
    classes: int
    rounds: int
    best_of: int
    processes: int
    begin: Callable[[], object] | None  # what a process does first

    def steps(self, *losses: Loss) -> list[Work]:
        """Return a training step by each loss, of one network, each on a copy of the batch, which timm changes."""
        model = _network(self.classes)
        return [
            training(model, loss, steps=1, batch=random_batch(self.side, self.classes)) for loss in losses
        ]


CASES = (
    Case(224, 1000, rounds=11, best_of=1, processes=1, begin=None),
    Case(32, 10, rounds=67, best_of=2, processes=3, begin=keep_freed_memory),
)


def _torchvision(name: str, classes: int) -> Mixing:
    import_torchvision("a comparison")
    from torchvision.transforms import v2

    return getattr(v2, name)(num_classes=classes)


def _timm(alphas: dict[str, float], classes: int) -> Mixing:
    import_torchvision("a comparison")  # timm needs one that can be imported
    from timm.data import Mixup

    return Mixup(**alphas, label_smoothing=0.0, num_classes=classes)


PEERS: dict[str, tuple[str, Callable[[int], Mixing]]] = {
    "torchvision v2.MixUp": ("mixup", partial(_torchvision, "MixUp")),
    "torchvision v2.CutMix": ("cutmix", partial(_torchvision, "CutMix")),
    "timm Mixup": ("mixup", partial(_timm, {"mixup_alpha": 1.0, "cutmix_alpha": 0.0})),
    "timm CutMix": ("cutmix", partial(_timm, {"mixup_alpha": 0.0, "cutmix_alpha": 1.0})),
}  # our scheme, and what makes theirs for a number of classes


def measure() -> Iterator[Ratio]:
    """Yield the cost of a step of ours in units of each peer's."""
    for case, peer in itertools.product(CASES, PEERS):
        try:
            measured, left_out = in_processes(case.processes, _beside, case, peer, begin=case.begin)
        except (EnvironmentProblem, ImportError, RuntimeError) as problem:
            print(f"{peer} cannot be imported, not compared with: {problem}")
            continue
        name = f"{PEERS[peer][0]} step / {peer} step, 128x3x{case.side}x{case.side}, {case.classes:,} classes"
        yield Ratio.of(name, list(zip(*measured, strict=True)), left_out=left_out)


def _beside(case: Case, peer: str) -> Turns:
    """Return the seconds of a step of ours and of the peer's."""
    text, make = PEERS[peer]
    method, theirs = scheme(text), make(case.classes)

    def our_loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return method(model, x, y).loss

    def their_loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        mixed, labels = theirs(x, y)
        return F.cross_entropy(model(mixed), labels)

    return by_turns(case.steps(our_loss, their_loss), rounds=case.rounds, best_of=case.best_of)
