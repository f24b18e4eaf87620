"""The noise of both kernels is as random as its law says: moments, tails, neighbours, examples, steps, ranks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import pytest
import torch
from scipy.special import ndtr
from torch import Tensor

from nfm.core.compiled import problem
from nfm.core.kernel import KERNELS, use_kernel
from nfm.core.streams import draw_values
from nfm.randomness import fold

CPU = torch.device("cpu")
SIGMAS = 4.5
EXAMPLES, SIZE = 64, 65_536  # 4.2 million values: about 2.4 beyond 5 sigma


@pytest.fixture(params=KERNELS, scope="module")
def drawn(request: pytest.FixtureRequest) -> Iterator[Tensor]:
    """Standard normal values [examples, size] of one step, in float64."""
    if request.param == "c" and problem():
        pytest.skip(f"no compiled kernel here: {problem()}")
    with use_kernel(request.param):
        yield draw_values("gaussian", (EXAMPLES, SIZE), fold(0, "step", 0), CPU).double()


def far(values: Tensor, expected: float, error: float) -> bool:
    """Tell whether the mean of `values` lies more than SIGMAS standard errors from `expected`."""
    return bool(abs(values.mean() - expected) > SIGMAS * error / math.sqrt(values.numel()))


def test_moments(drawn: Tensor) -> None:
    for power, moment, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96), (6, 15, 10170)):
        assert not far(drawn**power, moment, math.sqrt(variance))
    assert far((1.01 * drawn) ** 2, 1, math.sqrt(2))


def surprising(values: Tensor, limit: float, probability: float) -> bool:
    """Tell whether more or fewer values than a binomial count allows lie beyond `limit`."""
    count, expected = int((values > limit).sum()), values.numel() * probability
    return abs(count - expected) > SIGMAS * math.sqrt(expected) + 2


@pytest.mark.parametrize("limit", [1.0, 2.0, 3.0, 4.0, 4.5, 5.0])
@pytest.mark.parametrize("sign", [1, -1])
def test_tails(drawn: Tensor, limit: float, sign: int) -> None:
    assert not surprising(sign * drawn, limit, float(ndtr(-limit)))
    if limit <= 4:
        assert surprising(sign * 1.1 * drawn, limit, float(ndtr(-limit)))


@pytest.mark.parametrize("distance", [1, 2, 4, 64, 256, 257, 512, 1024, 16384, 32768])
def test_neighbours_are_uncorrelated(drawn: Tensor, distance: int) -> None:
    one, other = drawn[:, :-distance], drawn[:, distance:]
    assert not far(one * other, 0, 1)
    assert not far((one**2 - 1) * (other**2 - 1), 0, 2)
    assert far(one * (0.01 * one + other), 0, 1)


def correlations(rows: Tensor) -> Tensor:
    """Return the correlation of each two rows, in units of its standard error."""
    count = len(rows)
    return torch.corrcoef(rows)[torch.triu(torch.ones(count, count), 1).bool()] * math.sqrt(rows.shape[1])


def test_examples_are_uncorrelated(drawn: Tensor) -> None:
    found = correlations(drawn)  # 2016 pairs
    assert found.abs().max() < 5.5
    assert not far(found**2, 1, math.sqrt(2))
    assert correlations(torch.stack([drawn[0], drawn[0] + 20 * drawn[1]])).abs().max() > 5.5


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize(
    "key", [lambda i: fold(0, "step", i), lambda i: fold(0, "rank", i), lambda i: i, lambda i: i << 32],
    ids=["steps", "ranks", "neighbouring keys", "neighbouring high words"],
)  # fmt: skip
def test_keys_are_uncorrelated(name: str, key: Callable[[int], int]) -> None:
    if name == "c" and problem():
        pytest.skip(f"no compiled kernel here: {problem()}")
    with use_kernel(name):
        rows = torch.cat([draw_values("gaussian", (1, 20_000), key(i), CPU) for i in range(40)]).double()
    found = correlations(rows)  # 780 pairs
    assert found.abs().max() < 5.5
    assert not far(found**2, 1, math.sqrt(2))


def test_signs_of_rademacher_noise_are_fair_in_every_place() -> None:
    for name in KERNELS:
        if name == "c" and problem():
            continue
        with use_kernel(name):
            values = draw_values("rademacher", (4096, 256), 7, CPU).double()
        assert values.mean(0).abs().max() < 5.5 / math.sqrt(4096)
        assert not far(values[:, 1:] * values[:, :-1], 0, 1)
