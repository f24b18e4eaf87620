"""Works in step: layer by layer by turns, each with a clock of its own."""

from __future__ import annotations

import time

import pytest
import torch
from benchmarks.lockstep import Lockstep
from benchmarks.networks import Work
from torch import nn


def network(name: str, seen: list[str]) -> nn.Module:
    """Return two layers that tell when they are run, forward and backward."""
    layers = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))
    for layer in (layers[0], layers[2]):
        layer.register_forward_pre_hook(lambda *_: seen.append(name))
        layer.register_full_backward_hook(lambda *_: seen.append(name))
    return layers


def step(model: nn.Module) -> Work:
    return lambda: model(torch.ones(3, 2, requires_grad=True)).sum().backward()


def test_layers_take_turns_forward_and_backward() -> None:
    seen: list[str] = []
    one, two = network("one", seen), network("two", seen)
    Lockstep([one, two]).seconds([step(one), step(two)], first=1)
    assert seen == ["two", "one"] * 4
    seen.clear()
    three, four = network("three", seen), network("four", seen)
    Lockstep([]).seconds([step(three), step(four)])
    assert seen == ["three"] * 4 + ["four"] * 4


def test_a_clock_counts_its_own_work_alone() -> None:
    seen: list[str] = []
    one, two = network("one", seen), network("two", seen)
    two[1].register_forward_hook(lambda *_: time.sleep(0.2))
    quick, slow = Lockstep([one, two]).seconds([step(one), step(two)])
    assert slow > 0.2 > quick > 0


def test_one_that_has_fewer_layers_or_fails_holds_nobody_up() -> None:
    seen: list[str] = []
    one = network("one", seen)
    lockstep = Lockstep([one])
    assert len(lockstep.seconds([step(one), lambda: None, lambda: None])) == 3
    with pytest.raises(ZeroDivisionError):
        lockstep.seconds([lambda: 1 // 0, step(one)])
    assert seen == ["one"] * 8
