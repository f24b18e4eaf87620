"""Steps drawn ahead: what a step draws depends on its own number alone."""

from __future__ import annotations

import copy
import pickle
import threading

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import nfm
from nets import ConvNet, batch, build
from nfm.core import box
from nfm.core.draw import Choice
from nfm.core.operator import MANY
from nfm.core.weights import sample_weights
from nfm.method.ahead import STEPS, Ahead, Beginning, Laws, beginning_of
from nfm.randomness import (
    fold,
    numpy_generator,
    passing_generator,
    passing_torch_generator,
    torch_generator,
)

SITES = ("input", "first", "second")


def begin(
    step: int, *, sites: tuple[str, ...] = SITES, seed: int = 7, rank: int = 0, alpha: float = 1.0
) -> Beginning:
    return beginning_of(step, Laws(sites, seed, rank, alpha, alpha, per_sample=False, dominant=False))


@pytest.mark.parametrize("step", [0, 1, STEPS - 1, STEPS, 5 * STEPS + 3, 10**9])
def test_a_step_is_what_its_key_says(step: int) -> None:
    site = SITES[int(numpy_generator(fold(7, step, 1, "site")).integers(len(SITES)))]
    key = fold(7, step, 1, "draw", site)
    weight = float(sample_weights(1.0, 1.0, 1, fold(key, "weight"), dominant=False)[0])
    assert begin(step, rank=1) == (site, key, weight, None)


def test_two_choices_of_a_step_differ_by_their_serial_numbers_alone() -> None:
    first, second = (nfm.preset("nfm", seed=3).choose(SITES, step=40).arguments for _ in range(2))
    assert (first.numbers, first.keys[:2]) == (second.numbers, second.keys[:2])
    assert first.keys.serial != second.keys.serial
    for made in (first, second):
        assert [tensor.tolist() for tensor in made.tensors] == [list(made.numbers), list(made.keys)]
    assert first.numbers != nfm.preset("nfm", seed=3).choose(SITES, step=41).arguments.numbers


@pytest.mark.parametrize("weights", ["batch", "sample"])
def test_pairings_are_those_of_their_keys(weights: str) -> None:
    """Drawn ahead or not: of the size that the last batch had, and of another."""
    method = nfm.NoisyFeatureMixup("input", weights=weights, seed=3)
    for step, size in ((4, 32), (5, 32), (6, 32), (7, 12), (20, 32)):
        choice = method.choose(("input",), step, batch=size)
        key = choice.arguments.keys.pairing
        assert torch.equal(
            choice.draw(size).partner, torch.randperm(size, generator=torch_generator(fold(key, "partner")))
        )
        drawn = sample_weights(
            1.0, 1.0, size if weights == "sample" else 1, fold(key, "weight"), dominant=False
        )
        assert choice.draw(size).weight.reshape(-1).tolist() == drawn.tolist()


def test_a_choice_drawn_ahead_is_good_for_another_size_and_as_a_copy() -> None:
    method = nfm.preset("mixup", seed=3)
    choice = [method.choose(("input",), batch=512) for _ in range(2)][1]
    drawn = choice.arguments.drawn
    assert drawn is not None
    assert choice.draw(512).pairing is drawn
    key = fold(choice.arguments.keys.pairing, "partner")
    for made in (choice, copy.deepcopy(choice), pickle.loads(pickle.dumps(choice))):
        for size in (12, 512):
            expected = torch.randperm(size, generator=torch_generator(key))
            assert torch.equal(made.draw(size).partner, expected)
            assert not torch.equal(made.draw(size).partner, expected.flip(0))
    assert len(pickle.dumps(choice)) < len(pickle.dumps(drawn.partner)) / 2  # they are drawn again
    with FakeTensorMode():
        assert choice.draw(512).pairing is not drawn


def test_pairings_are_drawn_a_block_of_steps_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[int] = []
    randperm = torch.randperm
    monkeypatch.setattr(torch, "randperm", lambda size, **how: drawn.append(size) or randperm(size, **how))

    def steps(method: nfm.NoisyFeatureMixup, sizes: list[int]) -> list[int]:
        drawn.clear()
        for size in sizes:
            method.choose(("input",), batch=size).draw(size)
        return drawn.copy()

    same = nfm.preset("mixup", seed=91)
    assert steps(same, [24, 24]) == [24] * STEPS  # the first alone, the second with the rest of its block
    assert steps(same, [24] * (STEPS - 2)) == []
    assert steps(nfm.preset("mixup", seed=92), [24, 25, 26, 27]) == [24, 25, 26, 27]
    assert steps(nfm.preset("mixup", seed=93), [MANY + 1] * 3) == [MANY + 1] * 3
    several = [nfm.preset("mixup", seed=seed) for seed in range(94, 103)]
    assert sum(len(steps(method, [24, 24])) for method in several) == len(several) * STEPS
    assert all(steps(method, [24] * (STEPS - 2)) == [] for method in several)


def test_each_ingredient_counts() -> None:
    others = [begin(4), begin(5), begin(4, seed=8), begin(4, rank=1), begin(4, alpha=0.5)]
    assert len({other.weight for other in others}) == len(others)
    assert begin(4, sites=("second",)).site == "second"


def test_a_setting_that_is_changed_between_two_steps_counts_from_the_next() -> None:
    method, fresh = (nfm.preset("mixup", seed=3) for _ in range(2))
    method.choose(("input",), step=0)
    method.alpha = method.beta = fresh.alpha = fresh.beta = 0.1
    changed, expected = (scheme.choose(("input",), step=1).arguments.numbers for scheme in (method, fresh))
    assert changed == expected
    assert changed != nfm.preset("mixup", seed=3).choose(("input",), step=1).arguments.numbers


def told(choice: Choice) -> tuple[object, ...]:
    """Return what a choice means."""
    return choice.site, choice.step, choice.arguments.numbers, choice.arguments.keys[:2]


def test_choices_made_ahead_are_those_made_alone_and_nobody_gets_one_twice() -> None:
    method = nfm.preset("nfm", seed=5)
    steps = [*range(20), 18, 19, 20, 3, 4, *range(30, 50)]
    taken = [method.choose(SITES, step, batch=12) for step in steps]
    alone = [nfm.preset("nfm", seed=5).choose(SITES, step) for step in steps]
    assert list(map(told, taken)) == list(map(told, alone))
    assert told(taken[0]) != told(taken[1])
    assert (
        len({choice.arguments.keys.serial for choice in taken})
        == len({id(each) for each in taken})
        == len(steps)
    )


class Other:
    """Settings whose choices tell whose they are; while one is made, something else may happen."""

    def __init__(self, name: str) -> None:
        self.name, self.meanwhile = name, lambda: None

    def choice(self, step: int) -> tuple[str, int]:
        self.meanwhile()
        return self.name, step


def test_choices_made_while_another_thread_asks_are_not_given_to_it() -> None:
    ahead, mine, theirs = Ahead(), Other("mine"), Other("theirs")
    assert ahead.take(0, mine) == ("mine", 0)
    mine.meanwhile = lambda: ahead.take(1, theirs)
    assert ahead.take(1, mine) == ("mine", 1)
    mine.meanwhile = lambda: None
    for step in range(2, 2 * STEPS):
        assert ahead.take(step, theirs) == ("theirs", step)
        assert ahead.take(step, mine) == ("mine", step)


def test_a_noise_seed_or_copy_in_the_middle_of_a_block_counts_from_the_next_step() -> None:
    method = nfm.preset("nfm", seed=5)
    for step in range(5):
        method.choose(SITES, step, batch=12)
    copied = pickle.loads(pickle.dumps(method))
    assert told(copied.choose(SITES, 5)) == told(method.choose(SITES, 5))
    method.noise = nfm.Noise(0.1)
    assert method.choose(SITES, 6).arguments.numbers.add == 0.1
    method.load_state_dict({"seed": 6, "step": 7})
    assert (
        method.choose(SITES).arguments.keys[:2]
        == nfm.preset("nfm", seed=6, noise=nfm.Noise(0.1)).choose(SITES, 7).arguments.keys[:2]
    )


def test_boxes_are_placed_ahead_for_the_shape_that_was_met(monkeypatch: pytest.MonkeyPatch) -> None:
    net, (x, y) = build(ConvNet), batch(6, 3, 8, 8)
    method = nfm.scheme("cutmix", seed=97)
    for _ in range(3):
        method(net, x, y)
    placed: list[int] = []
    place = box.place_box
    monkeypatch.setattr(box, "place_box", lambda *given: placed.append(1) or place(*given))
    for _ in range(3, STEPS):
        method(net, x, y)
    assert not placed
    method(net, x[..., 1:], y)  # the control
    assert placed


def test_passing_generators_are_as_fresh_ones() -> None:
    for key in (0, 1, 2**63 - 1):
        passing_generator(5).integers(3, size=3)  # leaves half a word behind
        assert np.array_equal(passing_generator(key).random(9), numpy_generator(key).random(9))
        assert passing_generator(key).integers(7) == numpy_generator(key).integers(7)
        drawn = (torch.randperm(9, generator=of(key)) for of in (passing_torch_generator, torch_generator))
        assert torch.equal(*drawn)
    assert passing_generator(1).random() != passing_generator(2).random()


def test_a_passing_generator_belongs_to_its_thread() -> None:
    mine = passing_generator(1)
    other = threading.Thread(target=lambda: passing_generator(2).random(50))
    other.start()
    other.join()
    assert mine.random() == numpy_generator(1).random()
