"""What each scheme costs: one training step over one of plain training, and beside other libraries.

Measured on `small_conv` at a quarter of its width, whose step takes 10 to 20 ms: a scheme costs 0.5 to 2 ms a step,
which a step of a second would hide. Times of one and the same step vary by a tenth on a shared machine, so a turn is
the best of three steps, and after PEER_ROUNDS turns the quartiles of the median are about 1% away. Beside it, and
only reported: the peers on PreActResNet-18 at a quarter of its width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.networks import Loss, Work, preact_resnet18, training
from benchmarks.side_by_side import Ratio, compare, compare_all
from nfm.errors import EnvironmentProblem
from nfm.method.schemes import SCHEMES, scheme
from nfm.models import build
from nfm.models.torchvision_compat import import_torchvision

ROUNDS, PEER_ROUNDS, LARGE_ROUNDS, BEST_OF = 5, 101, 5, 3
COMPOSED = ("nfm + label_smoothing", "adversarial + nfm")


def _small() -> nn.Module:
    return build("small_conv", num_classes=10, image_size=32, mean=(0.5,) * 3, std=(0.25,) * 3, width=0.25)


def _step(loss: Loss, network: Callable[[], nn.Module] = _small) -> Work:
    """Return one training step of a network of its own."""
    return training(network(), loss, steps=1)


def _ours(text: str) -> Loss:
    method = scheme(text)
    return lambda model, x, y: method(model, x, y).loss


def measure() -> Iterator[Ratio]:
    """Yield the cost of each scheme in units of plain training, and of ours in units of each peer's."""
    texts = (*(name for name in SCHEMES if name != "erm"), *COMPOSED)
    steps = {f"{text} step / erm step": _step(_ours(text)) for text in texts}
    yield from compare_all(steps, _step(_ours("erm")), rounds=ROUNDS, best_of=2)
    for peer, text, loss in _peers():
        name = f"{text} step / {peer} step"
        yield compare(name, _step(_ours(text)), _step(loss), rounds=PEER_ROUNDS, best_of=BEST_OF)
        works = (_step(each, lambda: preact_resnet18(0.25)) for each in (_ours(text), loss))
        yield compare(f"{name}, PreActResNet-18 of width 1/4", *works, rounds=LARGE_ROUNDS)


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
