"""A resumed run goes on to the bit: the state is a few integers."""

from __future__ import annotations

import json

import pytest
import torch

import nfm
from comparing import assert_different, assert_same
from nets import ConvNet, batch, build
from nfm.errors import UsageError
from nfm.method.presets import PRESETS

STEPS = 6


class Run:
    """A small training run, functional or attached."""

    def __init__(self, name: str, *, attached: bool, seed: int = 3) -> None:
        self.net = build(ConvNet)
        self.method = nfm.preset(name, sites=PRESETS[name].sites or ConvNet.sites, seed=seed)
        self.mixer = nfm.attach(self.net, self.method) if attached else None
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1, momentum=0.9)

    def train(self, first: int, last: int) -> None:
        for step in range(first, last):
            x, y = batch(6, 3, 5, 5, seed=step)
            self.optimizer.zero_grad()
            loss = self.mixer.loss(self.net(x), y) if self.mixer else self.method(self.net, x, y).loss
            loss.backward()
            self.optimizer.step()

    @property
    def scheme(self) -> nfm.Mixer | nfm.NoisyFeatureMixup:
        return self.mixer or self.method

    def save(self) -> dict:
        state = json.loads(json.dumps(self.scheme.state_dict()))  # plain numbers
        return {"net": self.net.state_dict(), "optimizer": self.optimizer.state_dict(), "scheme": state}

    def load(self, state: dict) -> None:
        self.net.load_state_dict(state["net"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.scheme.load_state_dict(state["scheme"])

    def weights(self) -> list[torch.Tensor]:
        return list(self.net.state_dict().values())


@pytest.mark.parametrize("attached", [False, True])
@pytest.mark.parametrize("name", list(PRESETS))
def test_resumed_equals_uninterrupted(name: str, attached: bool) -> None:
    whole = Run(name, attached=attached)
    whole.train(0, STEPS)
    first = Run(name, attached=attached)
    first.train(0, 2)
    second = Run(name, attached=attached, seed=77)
    second.load(first.save())
    second.train(2, STEPS)
    assert_same(second.weights(), whole.weights())
    assert second.save()["scheme"] == {"seed": 3, "step": STEPS}


@pytest.mark.parametrize("attached", [False, True])
def test_without_its_state_a_run_goes_on_differently(attached: bool) -> None:
    whole = Run("nfm", attached=attached)
    whole.train(0, STEPS)
    first = Run("nfm", attached=attached)
    first.train(0, 2)
    second = Run("nfm", attached=attached)
    state = first.save()
    second.load(state | {"scheme": {"seed": 3, "step": 0}})
    second.train(2, STEPS)
    assert_different(second.weights(), whole.weights())


def test_the_same_seed_gives_the_same_run_and_another_seed_another() -> None:
    runs = [Run("nfm", attached=False, seed=seed) for seed in (3, 3, 4)]
    for run in runs:
        run.train(0, STEPS)
    assert_same(runs[0].weights(), runs[1].weights())
    assert_different(runs[0].weights(), runs[2].weights())


@pytest.mark.parametrize("state", [{"seed": -1, "step": 0}, {"seed": "a", "step": 0}])
def test_a_bad_state_is_refused(state: dict) -> None:
    with pytest.raises(UsageError, match="seed"):
        nfm.preset("nfm").load_state_dict(state)
