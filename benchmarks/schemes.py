"""What each scheme costs: one training step over one of plain training (width 1/4), and beside other libraries."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.networks import Loss, Work, preact_resnet18, training
from benchmarks.side_by_side import Ratio, compare
from nfm.errors import EnvironmentProblem
from nfm.method.schemes import SCHEMES, scheme
from nfm.models.torchvision_compat import import_torchvision

STEPS, ROUNDS, PEER_ROUNDS = 2, 5, 25
COMPOSED = ("nfm + label_smoothing", "adversarial + nfm")


def _training(loss: Loss) -> Work:
    """Return a few training steps of a network of its own."""
    return training(preact_resnet18(0.25), loss, steps=STEPS)


def _ours(text: str) -> Loss:
    method = scheme(text)
    return lambda model, x, y: method(model, x, y).loss


def measure() -> Iterator[Ratio]:
    """Yield the cost of each scheme in units of plain training, and of ours in units of each peer's."""
    plain = _training(_ours("erm"))
    for text in (*(name for name in SCHEMES if name != "erm"), *COMPOSED):
        yield compare(f"{text} step / erm step", _training(_ours(text)), plain, rounds=ROUNDS)
    for peer, text, loss in _peers():
        yield compare(
            f"{text} step / {peer} step", _training(_ours(text)), _training(loss), rounds=PEER_ROUNDS
        )


def _peers() -> Iterator[tuple[str, str, Loss]]:
    """Yield (peer, our scheme, its step) for the mixing libraries that are installed; they mix labels to vectors."""

    def step(transform: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]) -> Loss:
        def run(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
            mixed, labels = transform(x.clone(), y)  # some of them mix in place
            return F.cross_entropy(model(mixed), labels)

        return run

    try:
        import_torchvision("a comparison")  # first: timm needs one that can be imported
        from torchvision.transforms import v2
    except (EnvironmentProblem, ImportError, RuntimeError):
        print("torchvision is not installed: not compared with")
    else:
        yield "torchvision v2.MixUp", "mixup", step(v2.MixUp(num_classes=10))
        yield "torchvision v2.CutMix", "cutmix", step(v2.CutMix(num_classes=10))
    try:
        from timm.data import Mixup
    except (ImportError, RuntimeError):
        print("timm is not installed: not compared with")
    else:
        settings: dict[str, Any] = {"label_smoothing": 0.0, "num_classes": 10}
        yield "timm Mixup", "mixup", step(Mixup(mixup_alpha=1.0, cutmix_alpha=0.0, **settings))
        yield "timm CutMix", "cutmix", step(Mixup(mixup_alpha=0.0, cutmix_alpha=1.0, **settings))
