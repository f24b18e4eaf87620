"""What mix and noise cost as one operation, against the same sums written the obvious way.

`obvious` below is the reference; forward and backward pass, float32, CPU, for every kernel that can be used here. At
the large shape a turn is the best of some: ours takes all cores and the obvious way mostly one, so a neighbour on a
shared machine slows ours alone. The last ratios are the memory of either pass at its peak, in tensors like its output.
"""

from __future__ import annotations

import itertools
import math
import subprocess
import sys
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from benchmarks.side_by_side import Ratio, compare
from nfm.core.compiled import problem
from nfm.core.draw import Choice
from nfm.core.kernel import KERNELS, use_kernel
from nfm.core.noise import Noise

SHAPES = ((128, 3, 32, 32), (128, 64, 32, 32), (128, 512, 4, 4), (128, 65, 256))
LARGE = SHAPES[1]
PRESETS = {"paper": Noise.paper(0.4, 0.2), "authors": Noise.authors(0.4, 0.2)}
WEIGHT, MEMORY_ROUNDS = 0.3, 5
SMALL_ROUNDS, ROUNDS, BEST_OF, FORWARD_ROUNDS = 21, 11, 3, 5  # the last three of the large shape


def obvious(x: Tensor, partner: Tensor, noise: Noise) -> Tensor:
    """Return mixed and noisy features as one would write it down."""
    mixed = WEIGHT * x + (1 - WEIGHT) * x[partner]
    xi = 2 * torch.rand_like(mixed) - 1 if noise.mult_law == "uniform" else torch.randn_like(mixed)
    return (1 + noise.mult * xi) * mixed + noise.add * torch.randn_like(mixed)


def choice(noise: Noise) -> Choice:
    """Return the random choices of one step."""
    return Choice("input", key=3, step=0, alpha=1.0, beta=1.0, per_sample=False, dominant=False, noise=noise)


def _both_ways(forward: Callable[[Tensor], Tensor], x: Tensor, g: Tensor) -> Callable[[], object]:
    return lambda: torch.autograd.grad(forward(x), x, g)


def _measure(kernel: str, preset: str, shape: tuple[int, ...]) -> Iterator[Ratio]:
    large = shape == LARGE
    noise, x = PRESETS[preset], torch.randn(shape, requires_grad=True)
    made, partner, g = choice(noise), torch.randperm(len(x)), torch.randn(shape)
    name = f"{kernel}, {preset}, {'x'.join(map(str, shape))}"

    def reference(x: Tensor) -> Tensor:
        return obvious(x, partner, noise)

    yield compare(
        f"{name}, forward and backward / obvious",
        _both_ways(made.apply, x, g), _both_ways(reference, x, g),
        rounds=ROUNDS if large else SMALL_ROUNDS, best_of=BEST_OF if large else 1,
    )  # fmt: skip
    yield compare(
        f"{name}, forward / obvious", lambda: made.apply(x), lambda: reference(x),
        rounds=FORWARD_ROUNDS if large else SMALL_ROUNDS,
    )  # fmt: skip


def measure() -> Iterator[Ratio]:
    """Yield the ratios."""
    for kernel in KERNELS:
        if kernel == "c" and problem():
            continue
        with use_kernel(kernel):
            for shape, preset in itertools.product(SHAPES, PRESETS):
                yield from _measure(kernel, preset, shape)
        yield from _memory(kernel)


PEAK = """
import sys, torch
from benchmarks.networks import peak_memory
from benchmarks.operation import LARGE, PRESETS, choice
from nfm.core.kernel import use_kernel
with use_kernel(sys.argv[1]):
    made = choice(PRESETS["paper"])
    small = torch.ones(4, 4, requires_grad=True)
    torch.autograd.grad(made.apply(small), small, small)  # imports what torch imports late
    x, g = torch.ones(LARGE, requires_grad=True), torch.ones(LARGE)
    before = peak_memory()
    out = made.apply(x)
    forward = peak_memory()
    grad, = torch.autograd.grad(out, x, g)
    print(forward - before, peak_memory() - forward)
"""


def _memory(kernel: str) -> Iterator[Ratio]:
    """Yield what either pass takes at its peak over what its output takes, each round in a process of its own."""
    size = 4 * math.prod(LARGE) / 2**20
    command = [sys.executable, "-c", PEAK, kernel]
    peaks = [
        [float(count) for count in subprocess.run(command, capture_output=True, check=True).stdout.split()]
        for _ in range(MEMORY_ROUNDS)
    ]
    for name, taken in zip(("forward", "backward"), zip(*peaks, strict=True), strict=True):
        pairs = [(each, size) for each in taken]
        yield Ratio.of(f"{kernel}, {name} peak memory / an output", pairs, unit="MiB")
