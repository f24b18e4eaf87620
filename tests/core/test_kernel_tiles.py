"""With channels last, the compiled kernel works on tiles: wherever these start and end, the values are the same."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

import nfm
from nfm.core import compiled
from nfm.core.draw import Choice
from nfm.core.kernel import use_kernel

# (examples, channels, places...): whole and odd channels in a tile, tiles amid a channel, blocks that overlap
SHAPES = [
    (3, 64, 32, 32), (3, 20, 7, 7), (3, 17, 56, 56), (2, 5, 150, 151), (3, 512, 4, 4), (3, 33, 2, 1), (2, 40, 33, 31),
    (70, 4, 5, 5), (2, 4, 300, 3), (3, 7, 4, 5, 6), (2, 2000, 1, 3),
]  # fmt: skip
NOISES = [nfm.Noise(), nfm.Noise(0.4, 0.2), nfm.Noise(0.4, 0.2, "rademacher", "uniform", sparsity=0.3)]
LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


@pytest.fixture(autouse=True)
def kernel(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    if compiled.problem():
        pytest.skip(f"no compiled kernel here: {compiled.problem()}")
    for least in ("NOISY_A_THREAD", "MIXED_A_THREAD"):
        monkeypatch.setattr(compiled, least, 1)
    before = torch.get_num_threads()
    with use_kernel("c"):
        yield
    torch.set_num_threads(before)


def both_passes(noise: nfm.Noise, x: Tensor, g: Tensor, *, alpha: float = 1.0) -> tuple[Tensor, Tensor]:
    made = Choice(
        "input", key=3, step=0, alpha=alpha, beta=alpha, per_sample=True, dominant=False, noise=noise
    )
    x = x.detach().requires_grad_()
    out = made.apply(x)
    return out.detach(), torch.autograd.grad(out, x, g)[0]


def feature(shape: tuple[int, ...], seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_channels_last_changes_no_bit(shape: tuple[int, ...]) -> None:
    x, g = feature(shape, 0), feature(shape, 1)
    for noise, alpha, threads in itertools.product(NOISES, (1.0, 0.0), (1, 5)):
        torch.set_num_threads(threads)
        expected = both_passes(noise, x, g, alpha=alpha)
        last = [each.contiguous(memory_format=LAST[len(shape)]) for each in (x, g)]
        for ours, theirs in zip(both_passes(noise, *last, alpha=alpha), expected, strict=True):
            assert torch.equal(ours, theirs), (noise, alpha, threads)
            assert ours.is_contiguous(memory_format=LAST[len(shape)])


def test_one_element_elsewhere_is_noticed() -> None:
    x, g = feature((3, 20, 7, 7), 0), feature((3, 20, 7, 7), 1)
    expected = both_passes(nfm.Noise(0.4, 0.2), x, g)
    x[0, 19, 6, 6] += 1
    g[0, 19, 6, 6] += 1
    last = [each.contiguous(memory_format=torch.channels_last) for each in (x, g)]
    for ours, theirs in zip(both_passes(nfm.Noise(0.4, 0.2), *last), expected, strict=True):
        assert 1 <= int((ours != theirs).sum()) <= 2
