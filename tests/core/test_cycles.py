"""Cycles of a permutation, cut into stretches."""

from __future__ import annotations

import itertools

import pytest
import torch

from nfm.core.cycles import STRETCH, stretches


@pytest.mark.parametrize("size", [1, 2, 31, 32, 33, 200])
def test_stretches_take_each_example_once_behind_the_one_before_it(size: int) -> None:
    for seed in range(20):
        partner = torch.randperm(size, generator=torch.Generator().manual_seed(seed)).tolist()
        found = stretches(partner)
        assert sorted(row for _, *stretch in found for row in stretch) == list(range(size))
        assert all(partner[row] == after for stretch in found for row, after in itertools.pairwise(stretch))
        assert max(map(len, found)) <= STRETCH + 1
    assert size < STRETCH or len(stretches([*range(1, size), 0])) == -(-size // STRETCH)
