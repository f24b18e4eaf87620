"""Levels drawn by the compiled kernel are those that torch's own operations draw, to the bit."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from nfm.core import compiled
from nfm.core.kernel import use_kernel
from nfm.evaluate.corruptions import corrupt
from nfm.evaluate.corruptions.laws import alias_table, draw_readably, noise_law
from nfm.evaluate.keyed import Stream

pytestmark = pytest.mark.skipif(bool(compiled.problem()), reason=f"no compiled kernel: {compiled.problem()}")

LAWS = {"gaussian": 0.08, "speckle": 0.2, "shot": 50.0, "impulse": 0.07}


def some_pixels(*shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(4)
    return torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8)


@pytest.mark.parametrize("kind", LAWS)
@pytest.mark.parametrize("shape", [(7, 3, 32, 32), (3, 3, 9, 11), (1, 1, 8, 8), (2, 3, 45, 77)], ids=str)
def test_the_kernel_draws_the_levels_of_the_readable_way(kind: str, shape: tuple[int, ...]) -> None:
    pixels, table = some_pixels(*shape), alias_table(noise_law(kind, LAWS[kind]))
    stream = Stream.of(torch.arange(len(pixels)) + 2**40, "levels")
    before = pixels.clone()
    ours = compiled.draw_levels(pixels, stream.keys, table)
    assert torch.equal(ours, draw_readably(pixels, stream, table))
    assert torch.equal(pixels, before)
    other = Stream.of(torch.arange(len(pixels)), "others")
    assert not torch.equal(ours, compiled.draw_levels(pixels, other.keys, table))


def test_any_layout_and_number_of_threads_gives_the_same() -> None:
    table = alias_table(noise_law("gaussian", 0.1))
    pixels = some_pixels(16, 3, 64, 64)
    keys = Stream.of(torch.arange(32), "levels").keys[::2]
    ours = compiled.draw_levels(pixels, keys.contiguous(), table)
    turned = pixels.contiguous(memory_format=torch.channels_last)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        assert torch.equal(compiled.draw_levels(turned, keys, table), ours)
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("family", ["gaussian_noise", "shot_noise", "impulse_noise", "speckle_noise"])
def test_a_corruption_is_the_same_with_both_kernels(family: str) -> None:
    pixels, ids = some_pixels(5, 3, 32, 32), torch.arange(5)
    made = []
    for kernel in ("c", "torch"):
        with use_kernel(kernel):
            made.append(corrupt(pixels, ids, family, 3))
    assert torch.equal(*made)
    assert not torch.equal(made[0], corrupt(pixels, ids + 1, family, 3))
