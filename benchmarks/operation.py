"""What mix and noise cost as one operation, against the same sums written the obvious way.

The ratios are of time, so below 1 is faster. `obvious` below is the reference; forward and backward pass, float32, CPU.
``python -m benchmarks.operation`` prints the memory too.
"""

from __future__ import annotations

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
LIMITS = {"c": 0.1, "torch": 0.25}  # at the large shape; 1 at the others
PRESETS = {"paper": Noise.paper(0.4, 0.2), "authors": Noise.authors(0.4, 0.2)}
WEIGHT, ROUNDS = 0.3, 11


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


def _measure(kernel: str, preset: str, shape: tuple[int, ...], rounds: int) -> Iterator[Ratio]:
    noise, x = PRESETS[preset], torch.randn(shape, requires_grad=True)
    made, partner, g = choice(noise), torch.randperm(len(x)), torch.randn(shape)
    limit = LIMITS[kernel] if shape == LARGE else 1
    name = f"{kernel}, {preset}, {'x'.join(map(str, shape))}"

    def reference(x: Tensor) -> Tensor:
        return obvious(x, partner, noise)

    yield compare(
        f"{name} forward and backward / obvious (at most {limit})",
        _both_ways(made.apply, x, g), _both_ways(reference, x, g), rounds=rounds,
    )  # fmt: skip
    yield compare(f"{name} forward / obvious", lambda: made.apply(x), lambda: reference(x), rounds=rounds)


def measure(rounds: int = ROUNDS) -> Iterator[Ratio]:
    """Yield the ratios of every kernel that can be used here."""
    for kernel in KERNELS:
        if kernel == "c" and problem():
            continue
        with use_kernel(kernel):
            for shape in SHAPES:
                for preset in PRESETS:
                    yield from _measure(kernel, preset, shape, rounds)


PEAK = """
import resource, sys, torch
from benchmarks.operation import LARGE, PRESETS, choice
from nfm.core.kernel import use_kernel
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
with use_kernel(sys.argv[1]):
    made = choice(PRESETS["paper"])
    small = torch.ones(4, 4, requires_grad=True)
    made.apply(small).sum().backward()
    x, g = torch.ones(LARGE, requires_grad=True), torch.ones(LARGE)
    before = peak()
    out = made.apply(x)
    forward = peak()
    grad, = torch.autograd.grad(out, x, g)
    print(forward - before, peak() - forward)
"""


def extra_memory(kernel: str) -> tuple[float, float]:
    """Return the peak memory of the forward and of the backward pass, in tensors like their output."""
    done = subprocess.run(
        [sys.executable, "-c", PEAK, kernel], capture_output=True, text=True, check=True
    )  # fmt: skip
    size = 4 * torch.Size(LARGE).numel()
    forward, backward = (int(count) / size for count in done.stdout.split())
    return forward, backward


def main() -> None:
    """Print the ratios and the memory."""
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads; median of ratios [quartiles]")
    for ratio in measure():
        print(ratio, flush=True)
    for kernel in KERNELS:
        if not (kernel == "c" and problem()):
            forward, backward = extra_memory(kernel)
            print(
                f"{kernel}: peak memory {forward:.2f} outputs forward, {backward:.2f} backward (at most 1.1)"
            )


if __name__ == "__main__":
    main()
