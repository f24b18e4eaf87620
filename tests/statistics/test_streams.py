"""What is drawn depends on seed, step, rank, purpose and site, on nothing else, and never twice the same."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from scipy.special import chdtri

import nfm
from nfm.core.operator import drawn_pairing
from nfm.core.weights import sample_beta
from nfm.errors import UsageError
from nfm.randomness import check_seed, fold, numpy_generator, torch_generator

PURPOSES = ("site", "draw", "weight", "noise", "partner")


def test_61440_streams_are_distinct() -> None:
    """64 ranks x 64 steps x 3 seeds x 5 purposes."""
    keys = [
        fold(seed, step, rank, purpose)
        for seed, step, rank, purpose in itertools.product(range(3), range(64), range(64), PURPOSES)
    ]
    assert len(set(keys)) == 61_440
    sample = keys[::40]
    for first in (
        lambda key: torch.rand((), generator=torch_generator(key), dtype=torch.float64).item(),
        lambda key: numpy_generator(key).random(),
    ):
        assert len({first(key) for key in sample}) == len(sample)


def test_parts_of_a_key_do_not_run_together() -> None:
    lists = [(1, 23), (12, 3), (123,), ("1", 23), ("123",), (1, "23"), (), ("",), ("", ""), (-1,), ("i1:1",)]
    assert len({fold(*parts) for parts in lists}) == len(lists)
    assert all(0 <= fold(*parts) < 2**63 for parts in lists)


def test_keys_are_the_same_in_every_version() -> None:
    """A resumed run must find its streams again: these numbers never change."""
    assert fold(0, "weight", 7) == 864416765693999982
    assert sample_beta(1.0, 1.0, 2, key=fold(0, "weight", 7)) == pytest.approx(
        [0.36718602210536067, 0.5399468736617512], rel=1e-12
    )


def be_rank_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 1)


def drawn(method: nfm.NoisyFeatureMixup, site: str = "input", step: int = 0) -> tuple[list, list, list]:
    """Return partners, weights and noisy zeros of one step."""
    choice = method.choose([site], step=step)
    draw = choice.draw(64)
    return draw.partner.tolist(), draw.weight.tolist(), choice.apply(torch.zeros(64, 5)).tolist()


def method(seed: int = 0) -> nfm.NoisyFeatureMixup:
    return nfm.NoisyFeatureMixup(sites=["input", "a"], weights="sample", seed=seed)


def test_the_same_key_draws_the_same() -> None:
    assert drawn(method()) == drawn(method())


def test_history_does_not_matter() -> None:
    used = method()
    for _ in range(5):
        used.choose(["input"])
    assert drawn(used, step=3) == drawn(method(), step=3)


@pytest.mark.parametrize("change", ["seed", "step", "site", "rank"])
def test_every_part_of_the_key_changes_partners_weights_and_noise(
    change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = drawn(method())
    if change == "rank":
        be_rank_1(monkeypatch)
    after = drawn(
        method(seed=int(change == "seed")),
        site="a" if change == "site" else "input",
        step=int(change == "step"),
    )
    assert all(one != other for one, other in zip(before, after, strict=True))


def test_ranks_choose_sites_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    sites = ["input", "a", "b", "c"]
    here = [method().choose(sites, step=step).site for step in range(50)]
    be_rank_1(monkeypatch)
    there = [method().choose(sites, step=step).site for step in range(50)]
    assert 0 < sum(one == other for one, other in zip(here, there, strict=True)) < 30  # expected 12.5


def test_views_share_partners_and_weights_and_have_noise_of_their_own() -> None:
    first = method().choose(["input"], step=0)
    second = first.again(view=1)
    zeros = torch.zeros(64, 5)
    assert torch.equal(first.draw(64).partner, second.draw(64).partner)
    assert torch.equal(first.draw(64).weight, second.draw(64).weight)
    assert not torch.equal(first.apply(zeros), second.apply(zeros))
    assert torch.equal(first.apply(zeros), first.again().apply(zeros))


def chi_square(counts: np.ndarray) -> float:
    expected = counts.sum() / len(counts)
    return float(((counts - expected) ** 2 / expected).sum())


def test_partners_are_a_uniform_permutation() -> None:
    orders = {order: index for index, order in enumerate(itertools.permutations(range(4)))}
    counts = np.zeros(24)
    for key in range(4800):
        pairing = drawn_pairing(key, 4, 0.5, 1.0, 1.0, per_sample=False, dominant=False)
        counts[orders[tuple(pairing.partner.tolist())]] += 1
    limit = chdtri(23, 1e-3)
    assert chi_square(counts) < limit
    counts[0] += 100  # the control: one order a little more often
    assert chi_square(counts) > limit


def test_sites_are_chosen_uniformly_and_do_not_change_the_weights() -> None:
    sites, chooser = ["input", "a", "b", "c"], method()
    choices = [chooser.choose(sites) for _ in range(2000)]
    counts = np.array([sum(choice.site == site for choice in choices) for site in sites])
    assert chi_square(counts) < chdtri(3, 1e-3)
    for site in sites:
        weights = [choice.arguments.numbers.weight for choice in choices if choice.site == site]
        assert abs(np.mean(weights) - 0.5) < 4.5 * np.sqrt(1 / 12 / len(weights))


@pytest.mark.parametrize("seed", [-1, 2**32, "abc", 1.5, None, True])
def test_bad_seeds_are_refused(seed: object) -> None:
    with pytest.raises(UsageError, match="seed: expected a whole number from 0 to 4294967295"):
        nfm.NoisyFeatureMixup(seed=seed)


def test_the_whole_range_of_seeds_is_taken() -> None:
    assert check_seed(0) == 0
    assert check_seed(2**32 - 1) == 2**32 - 1
    assert check_seed(np.int64(7)) == 7
