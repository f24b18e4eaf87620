"""NFM under torch.compile: a compiled step over an eager one, and graphs made after each site was visited once."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn
from torch._dynamo.utils import counters

from benchmarks.networks import Work, preact_resnet18, random_batch, training
from benchmarks.side_by_side import Ratio, compare
from nfm.method.attach import Mixer, attach

SITES = ("input", "stage2")  # a graph each takes the compiler a minute
STEPS, ROUNDS = 1, 15


def _steps(model: nn.Module, forward: Callable[[Tensor], Tensor], mixer: Mixer) -> Work:
    def loss(_: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return mixer.loss(forward(x), y)

    return training(model, loss, steps=STEPS)


def _visit_all(model: nn.Module, forward: Callable[[Tensor], Tensor], mixer: Mixer) -> int:
    """Train until every site was visited; return how many graphs there are then."""
    x, y = random_batch()
    left = set(SITES)
    while left:
        left.discard(mixer.draw_of(forward(x), y).site)
    return counters["stats"]["unique_graphs"]


def measure() -> Iterator[Ratio]:
    """Yield the ratios."""
    eager, model = preact_resnet18(0.25), preact_resnet18(0.25)
    with attach(eager, "nfm", sites=SITES) as one, attach(model, "nfm", sites=SITES) as two:
        forward = torch.compile(model)
        graphs = _visit_all(model, forward, two)
        ours = _steps(model, forward, two)
        yield compare("compiled step / eager step, nfm", ours, _steps(eager, eager, one), rounds=ROUNDS)
        after = counters["stats"]["unique_graphs"]
    name = f"graphs after {STEPS * (ROUNDS + 1)} more steps / graphs after each site was visited"
    yield Ratio.of(name, [(after, graphs)], unit="graphs")
    torch.compiler.reset()
