"""What the theory costs: R1 and every R2 term of PreActResNet-18 (width 1/4) on CIFAR-sized images at each site.

``python -m benchmarks.theory`` prints seconds and memory; ``--examples`` says of how many images. Exact terms take
one forward pass and a backward pass an output, so the cost is linear in examples and in classes.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from benchmarks.networks import peak_memory
from benchmarks.side_by_side import seconds
from nfm.core.noise import Noise
from nfm.models import build
from nfm.theory import check_sound, gradient_terms, site_map

EXAMPLES = (64, 128, 256)
NETWORK = "PreActResNet-18, width 1/4, 10 classes, 32x32"
MOST_SECONDS, MOST_GIGABYTES = 60.0, 4.0  # for 256 images at one site, on two cores


@dataclass(frozen=True)
class Cost:
    """Seconds of all exact terms of one site, and the most memory of the process so far."""

    site: str
    examples: int
    seconds: float
    gigabytes: float

    def __str__(self) -> str:
        return (
            f"{self.site:<8} {self.examples:4d} images  {self.seconds:6.2f} s  "
            f"{1000 * self.seconds / self.examples:6.1f} ms an image  {self.gigabytes:.2f} GB"
        )


def measure(counts: Sequence[int] = EXAMPLES) -> Iterator[Cost]:
    """Yield the cost at every default site, for growing numbers of images."""
    model = build("preact_resnet18", num_classes=10, mean=(0.5,) * 3, std=(0.25,) * 3, width=0.25)
    generator = torch.Generator().manual_seed(0)
    for site in model.default_sites:
        for count in counts:
            x = torch.rand(count, 3, 32, 32, generator=generator)
            y = torch.randint(0, 10, (count,), generator=generator)

            def work(site: str = site, x: torch.Tensor = x, y: torch.Tensor = y) -> object:
                places = check_sound(site_map(model, x, site=site))
                return gradient_terms(places, y, noise=Noise(0.4, 0.2), alpha=1.0, beta=1.0)

            if count == counts[0]:
                work()  # what is loaded once
            taken = seconds(work)
            yield Cost(site, count, taken, peak_memory() / 1024)


def main() -> None:
    """Print every cost, and whether the promise is kept."""
    options = argparse.ArgumentParser(prog="python -m benchmarks.theory", description=__doc__)
    options.add_argument("--examples", type=int, nargs="+", default=EXAMPLES, help="numbers of images")
    print(f"{NETWORK}; torch {torch.__version__}, {torch.get_num_threads()} threads")
    kept = True
    for cost in measure(options.parse_args().examples):
        kept &= cost.seconds < MOST_SECONDS and cost.gigabytes < MOST_GIGABYTES
        print(cost, flush=True)
    print(f"every site under {MOST_SECONDS:g} s and {MOST_GIGABYTES:g} GB: {'yes' if kept else 'NO'}")


if __name__ == "__main__":
    main()
