"""Keyed choices among examples."""

import numpy as np
import pytest
import torch

from nfm.data import Examples
from nfm.data.splits import balanced_subset, imbalanced, noisy_labels, split
from nfm.errors import DataError, UsageError


def examples(labels: list[int]) -> Examples:
    n = len(labels)
    return Examples(torch.zeros(n, 1, 2, 2, dtype=torch.uint8), torch.tensor(labels), torch.arange(n))


UNEVEN = examples([0] * 500 + [1] * 300 + [2] * 200)


def counts(part: Examples) -> list[int]:
    return torch.bincount(part.labels, minlength=3).tolist()


def test_a_split_is_stratified_exact_and_disjoint() -> None:
    kept, held = split(UNEVEN, 0.1, key=1)
    assert len(held) == 100
    assert np.abs(np.array(counts(held)) - [50, 30, 20]).max() <= 1
    assert sorted([*kept.ids.tolist(), *held.ids.tolist()]) == list(range(1000))


def test_a_split_follows_its_key() -> None:
    held = [set(split(UNEVEN, 0.1, key=key)[1].ids.tolist()) for key in (1, 1, 2)]
    assert held[0] == held[1] != held[2]


@pytest.mark.parametrize("fraction", [-0.1, 1.0, float("nan")])
def test_a_split_refuses_other_fractions(fraction: float) -> None:
    with pytest.raises(UsageError, match="fraction"):
        split(UNEVEN, fraction, key=0)


def test_a_subset_is_balanced_and_nested() -> None:
    small, large = balanced_subset(UNEVEN, 90, key=5), balanced_subset(UNEVEN, 900, key=5)
    assert counts(small) == [30, 30, 30]
    assert counts(large) == [400, 300, 200]  # as equal as the data allows
    assert set(small.ids.tolist()) < set(large.ids.tolist())
    assert set(small.ids.tolist()) != set(balanced_subset(UNEVEN, 90, key=6).ids.tolist())


@pytest.mark.parametrize("size", [0, -1, 1001, 2.5, True])
def test_a_subset_refuses_other_sizes(size: object) -> None:
    with pytest.raises(UsageError, match="from 1 to 1000"):
        balanced_subset(UNEVEN, size, key=0)  # type: ignore[arg-type]


def test_imbalance_follows_the_exponential_profile() -> None:
    even = examples([number % 3 for number in range(3000)])
    assert counts(imbalanced(even, 100, 3, key=0)) == [1000, 100, 10]
    assert counts(imbalanced(even, 1, 3, key=0)) == [1000, 1000, 1000]


@pytest.mark.parametrize("ratio", [0.5, float("inf"), float("nan")])
def test_imbalance_refuses_other_ratios(ratio: float) -> None:
    with pytest.raises(UsageError, match="ratio"):
        imbalanced(UNEVEN, ratio, 3, key=0)


def test_label_noise_moves_the_asked_share_to_the_other_classes_evenly() -> None:
    n, rate = 30_000, 0.2
    clean = examples([number % 3 for number in range(n)])
    noisy = noisy_labels(clean, rate, 3, key=7)
    moved = (noisy.labels - clean.labels) % 3
    deviation = np.sqrt(rate * (1 - rate) / n)
    assert abs((moved != 0).float().mean().item() - rate) < 5 * deviation
    assert abs((moved == 1).float().mean().item() - rate / 2) < 5 * deviation
    assert torch.equal(
        noisy_labels(clean, 1.0, 3, key=7).labels == clean.labels, torch.zeros(n, dtype=torch.bool)
    )


def test_label_noise_is_the_examples_own() -> None:
    """A part of the data, in another order, has the same wrong labels."""
    whole = noisy_labels(UNEVEN, 0.3, 3, key=1)
    order = torch.randperm(400, generator=torch.Generator().manual_seed(0))
    part = noisy_labels(UNEVEN.subset(order), 0.3, 3, key=1)
    assert torch.equal(part.labels, whole.labels[order])
    assert not torch.equal(part.labels, noisy_labels(UNEVEN.subset(order), 0.3, 3, key=2).labels)


def test_label_noise_refuses_probabilities_as_labels() -> None:
    soft = UNEVEN.relabel(torch.full((1000, 3), 1 / 3))
    with pytest.raises(DataError, match="probabilities"):
        noisy_labels(soft, 0.1, 3, key=0)
