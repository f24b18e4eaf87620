"""Input mixup and CutMix beside other libraries: one training step over one of theirs, same network and batch.

The networks are small, so that a step shows what mixing costs: a step of a second would hide it. On a batch of
ImageNet's size memory decides; on one of CIFAR's size it is Python, on either side. Times of one and the same step vary
by a tenth on a shared machine, so a turn is the best of some steps.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import NamedTuple

import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.networks import Loss, Work, random_batch, small_network, training
from benchmarks.side_by_side import Ratio, compare
from nfm.errors import EnvironmentProblem
from nfm.method.schemes import scheme
from nfm.models.layers import conv_norm_relu
from nfm.models.torchvision_compat import import_torchvision

# Of images and labels: mixed ones, and label vectors
Mixing = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


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
    """A batch, a network for it, how often to measure, and whether each pair needs a process of its own.

    In one process a peer's big tensors come to lie in the big pages that ours asked for in the pair before.
    """

    side: int
    classes: int
    network: Callable[[], nn.Module]
    rounds: int
    best_of: int
    apart: bool

    def step(self, loss: Loss) -> Work:
        """Return one training step of a network of its own."""
        batch = random_batch(self.side, self.classes)
        return training(self.network(), loss, steps=1, batch=batch)


CASES = (
    Case(224, 1000, _strided_network, rounds=11, best_of=1, apart=True),
    Case(32, 10, small_network, rounds=41, best_of=6, apart=False),
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
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), max_tasks_per_child=1) as processes:
        for case, peer in itertools.product(CASES, PEERS):
            try:
                yield processes.submit(_beside, case, peer).result() if case.apart else _beside(case, peer)
            except (EnvironmentProblem, ImportError, RuntimeError) as problem:
                print(f"{peer} cannot be imported, not compared with: {problem}")


def _beside(case: Case, peer: str) -> Ratio:
    text, make = PEERS[peer]
    method, theirs = scheme(text), make(case.classes)

    def our_loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return method(model, x, y).loss

    def their_loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        mixed, labels = theirs(x, y)
        return F.cross_entropy(model(mixed), labels)

    name = f"{text} step / {peer} step, 128x3x{case.side}x{case.side}, {case.classes:,} classes"
    return compare(name, case.step(our_loss), case.step(their_loss), rounds=case.rounds, best_of=case.best_of)
