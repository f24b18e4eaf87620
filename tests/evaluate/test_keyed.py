"""Laws of the keyed numbers, with tolerances from the central limit theorem, and their independence."""

import math

import pytest
import torch
from scipy import stats

from nfm.evaluate.keyed import Stream

COUNT = 1_000_000
STREAM = Stream.of(torch.arange(1000), 0, "test")


def assert_within(value: float, expected: float, deviation: float) -> None:
    """Assert that `value` is within five standard deviations of what is expected."""
    assert abs(value - expected) < 5 * deviation


@pytest.fixture(scope="module")
def normal() -> torch.Tensor:
    return STREAM.normal((1000,)).double()


@pytest.fixture(scope="module")
def uniform() -> torch.Tensor:
    return STREAM.uniform((1000,)).double()


def test_moments_of_the_normal(normal: torch.Tensor) -> None:
    for power, expected, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        assert_within(float((normal**power).mean()), expected, math.sqrt(variance / COUNT))


@pytest.mark.parametrize("bound", [1.0, 2.0, 3.0, 4.0])
def test_tails_of_the_normal(normal: torch.Tensor, bound: float) -> None:
    share = 2 * stats.norm.sf(bound)
    for side in (normal > bound, normal < -bound):
        assert_within(float(side.double().mean()), share / 2, math.sqrt(share / 2 / COUNT))


def test_law_of_the_normal(normal: torch.Tensor) -> None:
    assert stats.kstest(normal.flatten().numpy(), "norm").pvalue > 1e-3


def test_law_test_sees_a_wrong_scale(normal: torch.Tensor) -> None:
    assert stats.kstest(1.02 * normal.flatten().numpy(), "norm").pvalue < 1e-3


def test_law_of_the_uniform(uniform: torch.Tensor) -> None:
    assert uniform.min() >= 0
    assert uniform.max() < 1
    assert stats.kstest(uniform.flatten().numpy(), "uniform").pvalue > 1e-3


@pytest.mark.parametrize("lag", [1, 2, 3, 31, 32])
@pytest.mark.parametrize("axis", [0, 1])
def test_neighbours_are_uncorrelated(normal: torch.Tensor, axis: int, lag: int) -> None:
    """Axis 0 is between examples of neighbouring ids, axis 1 between neighbouring pixels."""
    size = 1000 - lag
    left, right = normal.narrow(axis, 0, size), normal.narrow(axis, lag, size)
    for a, b in ((left, right), (left.abs(), right.abs())):
        assert_within(
            float(torch.corrcoef(torch.stack([a.flatten(), b.flatten()]))[0, 1]), 0, 1 / math.sqrt(a.numel())
        )


def test_every_bit_is_fair() -> None:
    bits = STREAM._bits(1000, 0)
    for place in range(32):
        assert_within(float(((bits >> place) & 1).double().mean()), 0.5, 0.5 / math.sqrt(COUNT))


@pytest.mark.parametrize("draw", [Stream.uniform, Stream.normal])
@pytest.mark.parametrize("shape", [(1,), (7,), (3, 5, 5)])
def test_a_row_depends_on_its_id_alone(draw, shape) -> None:  # type: ignore[no-untyped-def]
    ids = torch.tensor([5, 0, -3, 2**62, 17])
    whole = draw(Stream.of(ids, 0, "test"), shape)
    assert whole.shape == (5, *shape)
    for row, example in enumerate(ids):
        assert torch.equal(draw(Stream.of(example[None], 0, "test"), shape)[0], whole[row])
    order = torch.tensor([4, 2, 0, 1, 3])
    assert torch.equal(draw(Stream.of(ids[order], 0, "test"), shape), whole[order])


def test_other_keys_draw_other_numbers() -> None:
    ids = torch.arange(3)
    first = Stream.of(ids, 0, "a").uniform((64,))
    for other in (Stream.of(ids, 1, "a"), Stream.of(ids, 0, "b"), Stream.of(ids + 3, 0, "a")):
        assert (first == other.uniform((64,))).double().mean() < 0.05
    assert (first == Stream.of(ids, 0, "a").uniform((64,), purpose=1)).double().mean() < 0.05


def test_threads_change_nothing() -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = STREAM.normal((777,))
        torch.set_num_threads(2)
        assert torch.equal(STREAM.normal((777,)), alone)
    finally:
        torch.set_num_threads(before)


def test_the_first_numbers_are_pinned() -> None:
    """A change of these numbers would change every published table."""
    drawn = Stream.of(torch.tensor([7]), 0, "pin").normal((3,))[0].tolist()
    assert drawn == pytest.approx([-0.6948234, -0.6913170, -0.7682334], abs=1e-6)
