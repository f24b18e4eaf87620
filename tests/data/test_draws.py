"""Keyed uniforms: a function of (key, id, slot), uniform, independent between neighbours."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from nfm.data.draws import uniforms


@given(st.lists(st.integers(0, 2**62), min_size=1, max_size=20), st.integers(0, 2**63 - 1))
def test_an_ids_numbers_do_not_depend_on_its_company(ids: list[int], key: int) -> None:
    together = uniforms(np.array(ids), 3, key=key)
    alone = np.concatenate([uniforms(np.array([one]), 3, key=key) for one in ids])
    assert (together == alone).all()
    assert ((together >= 0) & (together < 1)).all()


def test_more_slots_leave_the_first_as_they_are() -> None:
    ids = np.arange(50)
    assert (uniforms(ids, 2, key=9) == uniforms(ids, 5, key=9)[:, :2]).all()


@pytest.mark.parametrize("change", ["key", "ids"])
def test_another_key_or_id_gives_other_numbers(change: str) -> None:
    ids = np.arange(1000)
    first = uniforms(ids, 2, key=4)
    other = uniforms(ids, 2, key=5) if change == "key" else uniforms(ids + 1000, 2, key=4)
    assert not (first == other).any()


@pytest.mark.parametrize("ids", [np.arange(200_000), np.arange(200_000) * 4096, 2**40 - np.arange(200_000)])
@pytest.mark.parametrize("key", [0, 1, 2**63 - 1])
def test_numbers_are_uniform_and_uncorrelated(ids: np.ndarray, key: int) -> None:
    draw = uniforms(ids, 3, key=key)
    for slot in draw.T:
        assert stats.kstest(slot, "uniform").pvalue > 1e-5
    # A correlation of independent columns has deviation 1/sqrt(n): five of them.
    bound = 5 / np.sqrt(len(ids))
    assert np.abs(np.corrcoef(draw.T) - np.eye(3)).max() < bound
    assert abs(np.corrcoef(draw[1:, 0], draw[:-1, 0])[0, 1]) < bound
    nearby = uniforms(ids, 1, key=key ^ 1)[:, 0]
    assert abs(np.corrcoef(draw[:, 0], nearby)[0, 1]) < bound


def test_pairs_fill_the_square_evenly() -> None:
    draw = uniforms(np.arange(256_000), 2, key=3)
    cells = np.bincount((draw[:, 0] * 16).astype(int) * 16 + (draw[:, 1] * 16).astype(int), minlength=256)
    assert stats.chisquare(cells).pvalue > 1e-5


def test_the_uniformity_test_can_fail() -> None:
    squared = uniforms(np.arange(200_000), 1, key=0)[:, 0] ** 1.02
    assert stats.kstest(squared, "uniform").pvalue < 1e-5
