"""What each scheme costs: one training step over one of plain training, all in one run.

``python -m benchmarks.schemes`` prints the table of the docs; ``--rounds`` says how often each pair is measured.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.side_by_side import Ratio, compare
from nfm.errors import EnvironmentProblem
from nfm.method.schemes import SCHEMES, scheme
from nfm.models import build
from nfm.models.torchvision_compat import import_torchvision

BATCH, STEPS, ROUNDS = 128, 2, 5
COMPOSED = ("nfm + label_smoothing", "adversarial + nfm")
NETWORK = "PreActResNet-18, width 1/4, batch 128"
Step = Callable[[nn.Module, Tensor, Tensor], Tensor]


def _batch() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(BATCH, 3, 32, 32, generator=generator)
    return x, torch.randint(0, 10, (BATCH,), generator=generator)


def _training(step: Step) -> Callable[[], object]:
    """Return a few training steps of a network of its own, whose loss is that of `step`."""
    model = build("preact_resnet18", num_classes=10, mean=(0.5,) * 3, std=(0.25,) * 3, width=0.25)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4)
    x, y = _batch()

    def run() -> None:
        for _ in range(STEPS):
            optimizer.zero_grad()
            step(model, x, y).backward()
            optimizer.step()

    return run


def _ours(text: str) -> Step:
    method = scheme(text)
    return lambda model, x, y: method(model, x, y).loss


def measure(rounds: int = ROUNDS) -> Iterator[Ratio]:
    """Yield the cost of each scheme in units of plain training."""
    plain = _training(_ours("erm"))
    for text in (*(name for name in SCHEMES if name != "erm"), *COMPOSED):
        yield compare(f"{text} step / erm step", _training(_ours(text)), plain, rounds=rounds)


def _peers() -> Iterator[tuple[str, str, Step]]:
    """Yield (peer, our scheme, its step) for the mixing libraries that are installed; they mix labels to vectors."""

    def step(transform: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]) -> Step:
        def run(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
            mixed, labels = transform(x.clone(), y)  # some of them mix in place
            return F.cross_entropy(model(mixed), labels)

        return run

    try:
        from timm.data import Mixup
    except (ImportError, RuntimeError):
        print("timm is not installed: not compared with")
    else:
        settings: dict[str, Any] = {"label_smoothing": 0.0, "num_classes": 10}
        yield "timm Mixup", "mixup", step(Mixup(mixup_alpha=1.0, cutmix_alpha=0.0, **settings))
        yield "timm CutMix", "cutmix", step(Mixup(mixup_alpha=0.0, cutmix_alpha=1.0, **settings))
    try:
        import_torchvision("a comparison")
        from torchvision.transforms import v2
    except (EnvironmentProblem, ImportError, RuntimeError):
        print("torchvision is not installed: not compared with")
    else:
        yield "torchvision v2.MixUp", "mixup", step(v2.MixUp(num_classes=10))
        yield "torchvision v2.CutMix", "cutmix", step(v2.CutMix(num_classes=10))


def measure_peers(rounds: int = ROUNDS) -> Iterator[Ratio]:
    """Yield the cost of our scheme in units of each peer's."""
    for peer, text, step in _peers():
        yield compare(f"{text} step / {peer} step", _training(_ours(text)), _training(step), rounds=rounds)


def table(ratios: list[Ratio]) -> str:
    """Return the ratios as a table of the docs."""
    lines = ["| scheme | step over plain training | quartiles |", "|---|---|---|"]
    for ratio in ratios:
        name = ratio.name.partition(" step /")[0]
        lines.append(f"| {name} | {ratio.median:.2f} | {ratio.low:.2f} to {ratio.high:.2f} |")
    return "\n".join(lines)


def main() -> None:
    """Print every ratio as it is measured, then the table."""
    options = argparse.ArgumentParser(prog="python -m benchmarks.schemes", description=__doc__)
    options.add_argument("--rounds", type=int, default=ROUNDS, help="how often each pair is measured")
    rounds = options.parse_args().rounds
    found = []
    for ratio in measure(rounds):
        print(ratio, flush=True)
        found.append(ratio)
    for ratio in measure_peers(rounds):
        print(ratio, flush=True)
    threads = torch.get_num_threads()
    print(
        f"\n{NETWORK}; torch {torch.__version__}, {threads} threads; median of {rounds} rounds\n\n{table(found)}"
    )


if __name__ == "__main__":
    main()
