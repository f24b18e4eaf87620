"""What must agree for rows to be gone on with: the pixels, the weights, and what the network makes of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from nfm.data.examples import Augment, Examples
from nfm.errors import UsageError
from nfm.evaluate import Smoothing, WhiteNoise, cells, certify, evaluate
from nfm.evaluate.fingerprints import SAMPLE, hash_pixels, summarise_output
from nfm.evaluate.journal import Journal
from nfm.randomness import torch_generator

NOISE = cells(WhiteNoise(), [0.1])


class Rolled(nn.Module):
    """A linear classifier of shifted pixels: the shift is no part of its state."""

    def __init__(self, shift: int, scale: float = 1.0) -> None:
        super().__init__()
        self.shift, self.scale = shift, scale
        self.weight = nn.Parameter(torch.randn(48, 3, generator=torch_generator(0)))

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * (x.roll(self.shift, -1).flatten(1) - 0.5) @ self.weight


class OnDemand:
    """Examples that are not in memory."""

    def __init__(self, held: Examples) -> None:
        self.held, self.fetched = held, 0
        self.labels, self.ids, self.shape = held.labels, held.ids, held.shape

    def __len__(self) -> int:
        return len(self.held)

    def fetch(self, indices: Tensor, *, augment: Augment | None = None, key: int = 0) -> Tensor:
        self.fetched += len(indices)
        return self.held.fetch(indices, augment=augment, key=key)


def make(n: int = 40) -> Examples:
    images = torch.randint(0, 256, (n, 3, 4, 4), generator=torch_generator(1), dtype=torch.uint8)
    return Examples(images, torch.arange(n) % 3, torch.arange(n) + 5)


def measure(model: nn.Module, examples: Examples, folder: Path) -> Any:
    return evaluate(model, examples, NOISE, save_to=folder)


def certified(model: nn.Module, examples: Examples, folder: Path) -> Any:
    return certify(model, examples, Smoothing(0.1, n=20, n0=5), limit=2, save_to=folder)


@pytest.mark.parametrize("work", [measure, certified])
def test_other_pixels_or_another_forward_are_refused(work: Callable[..., Any], tmp_path: Path) -> None:
    examples = make()
    first = work(Rolled(0), examples, tmp_path)
    one_pixel = examples.images.clone()
    one_pixel[20, 0, 0, 0] += 1
    with pytest.raises(UsageError, match=r"pixels: '\w+' there, '\w+' here"):
        work(Rolled(0), replace(examples, images=one_pixel), tmp_path)
    for other in (Rolled(1), Rolled(0, scale=-1.0), Rolled(0, scale=1.001)):
        with pytest.raises(UsageError, match=r"output: [\d.-]+ there, [\d.-]+ here"):
            work(other, examples, tmp_path)
    assert work(Rolled(0), examples, tmp_path).rows == first.rows


def test_the_order_of_the_examples_is_no_part_of_it(tmp_path: Path) -> None:
    examples = make()
    order = torch.randperm(len(examples), generator=torch_generator(2))
    assert measure(Rolled(0), examples, tmp_path).identity == (
        measure(Rolled(0), examples.subset(order), tmp_path).identity
    )
    assert hash_pixels(examples) != hash_pixels(replace(examples, images=examples.images[order]))


def test_images_on_demand_are_told_by_a_sample() -> None:
    held = make(3 * SAMPLE)
    on_demand = OnDemand(held)
    assert hash_pixels(on_demand) == hash_pixels(OnDemand(held))  # type: ignore[arg-type]
    assert on_demand.fetched == SAMPLE
    other = OnDemand(replace(held, images=255 - held.images))
    assert hash_pixels(on_demand) != hash_pixels(other)  # type: ignore[arg-type]


def test_rounding_is_no_other_output(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "head.json", "measurement")
    journal.start({"output": 2.0, "sigma": 2.0})
    journal.match({"output": 2.00001, "sigma": 2.0})
    for other in ({"output": 2.001, "sigma": 2.0}, {"output": 2.0, "sigma": 2.00001}, {"sigma": 2.0}):
        with pytest.raises(UsageError, match="holds another measurement"):
            journal.match(other)


def test_an_output_that_cannot_be_repeated_tells_nothing() -> None:
    x = make().images / 255
    noise = torch_generator(3)
    assert summarise_output(lambda x: Rolled(0)(x) + torch.randn(len(x), 3, generator=noise), x) is None
    assert summarise_output(lambda x: Rolled(0)(x) * float("nan"), x) is None
    assert summarise_output(Rolled(0), x) == summarise_output(Rolled(0), x) is not None
