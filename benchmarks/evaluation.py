"""What measuring costs: perturbing over a forward pass, salt and pepper over its draw, the grid over plain passes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from benchmarks.networks import pixels, preact_resnet18
from benchmarks.side_by_side import Ratio, compare
from nfm.data.examples import Examples, to_unit
from nfm.evaluate import SUITES, Perturbation, SaltAndPepper, WhiteNoise, evaluate

BATCH, GRID = 64, 250  # images of a perturbed batch, and of a test pass, which is one batch
PASSES = 26  # cells of the paper's grid: two perturbations at 13 levels
LEVELS = (0.02, 0.1, 0.35)


def _forward(model: nn.Module, x: Tensor) -> Callable[[], object]:
    def run() -> Tensor:
        with torch.inference_mode():
            return model(x)

    return run


def _perturbed(change: Perturbation, x: Tensor, ids: Tensor, level: float) -> Callable[[], object]:
    return lambda: change(x, ids, level, seed=0)


def _plain_passes(model: nn.Module, examples: Examples) -> Callable[[], object]:
    """Return a bare test loop over all examples, as many times as the grid has cells."""

    def run() -> int:
        right = 0
        with torch.inference_mode():
            for _ in range(PASSES):
                for indices in torch.arange(len(examples)).split(GRID):
                    logits = model(to_unit(examples.fetch(indices)))
                    right += int((logits.argmax(1) == examples.labels[indices]).sum())
        return right

    return run


def measure() -> Iterator[Ratio]:
    """Yield the ratios."""
    model, examples = preact_resnet18(1.0).eval(), pixels(GRID)
    x, ids = to_unit(examples.images[:BATCH]), examples.ids[:BATCH]
    for change in (WhiteNoise(), SaltAndPepper()):
        for level in LEVELS:
            name = f"{change.name} {level} / PreActResNet-18 forward"
            yield compare(name, _perturbed(change, x, ids, level), _forward(model, x), rounds=3)
    yield compare(
        "salt_and_pepper / one uniform draw a pixel and a copy",
        _perturbed(SaltAndPepper(), x, ids, 0.1),
        lambda: (torch.rand(BATCH, 1, 32, 32), x.clone()),
        rounds=51,
    )
    quarter = preact_resnet18(
        0.25
    ).eval()  # a sixteenth of the work of the whole network: harder to be small against
    yield compare(
        f"paper's grid / {PASSES} plain passes, width 1/4, {GRID} images",
        lambda: evaluate(quarter, examples, SUITES["curves"], batch_size=GRID),
        _plain_passes(quarter, examples),
        rounds=5,
    )
