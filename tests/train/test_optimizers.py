"""Optimizers: who decays, who learns how fast, who is frozen; and updates against the textbook's."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from comparing import assert_close, assert_different, assert_same
from nets import ConvNet, build
from nfm.data import Batches
from nfm.errors import UsageError
from nfm.train.optim import OPTIMIZERS, Optimizer, freeze
from nfm.train.schedule import Schedule
from running import digits, network, train


def groups(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, dict[str, Any]]:
    """Return the group of each parameter, by its name."""
    found = {id(p): group for group in optimizer.param_groups for p in group["params"]}
    return {name: found[id(p)] for name, p in model.named_parameters() if id(p) in found}


def test_decay_spares_biases_and_norms_when_asked() -> None:
    model = build(ConvNet)
    decays = {
        name: g["weight_decay"] for name, g in groups(model, Optimizer(decay_all=False).build(model)).items()
    }
    assert {name for name, decay in decays.items() if decay == 5e-4} == {
        "first.0.weight", "second.0.weight", "head.weight",
    }  # fmt: skip
    assert {decay for name, decay in decays.items() if name.endswith("bias") or ".1." in name} == {0.0}
    model = build(ConvNet)
    assert {g["weight_decay"] for g in groups(model, Optimizer().build(model)).values()} == {5e-4}


def test_layerwise_rates_take_the_first_glob_that_fits() -> None:
    model = build(ConvNet)
    spec = Optimizer(lr=0.2, rates={"first.*": 0.1, "*.weight": 0.5, "head.bias": 0})
    rates = {name: g["lr"] for name, g in groups(model, spec.build(model)).items()}
    assert rates["first.0.weight"] == rates["first.1.bias"] == pytest.approx(0.02)
    assert rates["second.0.weight"] == rates["head.weight"] == pytest.approx(0.1)
    assert rates["second.0.bias"] == pytest.approx(0.2)
    assert "head.bias" not in rates  # a rate of 0 freezes
    assert not model.head.bias.requires_grad


def test_freeze_counts_once_and_freezes() -> None:
    model = build(ConvNet)
    first = sum(p.numel() for p in model.first.parameters())
    assert freeze(model, ("first.*", "first.0.weight")) == first
    assert not any(p.requires_grad for p in model.first.parameters())
    assert all(p.requires_grad for p in model.second.parameters())


def test_frozen_parameters_stay_to_the_bit_and_others_move() -> None:
    model = network(digits())
    freeze(model, ("hidden1.*",))
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    train(model=model, optimizer=Optimizer(lr=0.1, rates={"hidden2.*": 0}))
    moved = {name for name, p in model.named_parameters() if not torch.equal(p, before[name])}
    assert moved == {f"{layer}.{part}" for layer in ("hidden3.0", "head") for part in ("weight", "bias")}


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"name": "sdg"}, "did you mean 'sgd'"),
        ({"lr": -1.0}, "optimizer.lr"),
        ({"lr": float("nan")}, "optimizer.lr"),
        ({"lr": float("inf")}, "optimizer.lr"),
        ({"weight_decay": -1e-4}, "optimizer.weight_decay"),
        ({"momentum": float("nan")}, "optimizer.momentum"),
        ({"nesterov": True, "momentum": 0.0}, "optimizer.nesterov"),
        ({"betas": (0.9, 1.0)}, "optimizer.betas"),
        ({"betas": (0.9,)}, "optimizer.betas"),
        ({"rates": {"head*": -1.0}}, r"optimizer.rates.head\*"),
        ({"rates": {"head*": "fast"}}, r"optimizer.rates.head\*"),
    ],
)
def test_bad_numbers_are_refused(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        Optimizer(**settings)


def test_globs_that_fit_nothing_are_refused() -> None:
    with pytest.raises(UsageError, match="no parameter fits 'haed"):
        Optimizer(rates={"haed*": 0.1}).build(build(ConvNet))
    with pytest.raises(UsageError, match="freeze: no parameter fits 'haed"):
        freeze(build(ConvNet), ("haed*",))
    with pytest.raises(UsageError, match="all are frozen"):
        Optimizer(rates={"*": 0}).build(build(ConvNet))


# Updates by hand, in float64; `state` holds what one parameter remembers.
def sgd(spec: Optimizer, p: Tensor, g: Tensor, state: dict[str, Any], step: int) -> Tensor:
    g = g + spec.weight_decay * p
    state["v"] = spec.momentum * state.get("v", torch.zeros_like(p)) + g
    return p - spec.lr * (g + spec.momentum * state["v"] if spec.nesterov else state["v"])


def adam(spec: Optimizer, p: Tensor, g: Tensor, state: dict[str, Any], step: int) -> Tensor:
    if spec.name == "adam":
        g = g + spec.weight_decay * p
    else:
        p = p - spec.lr * spec.weight_decay * p  # Loshchilov and Hutter 2019, algorithm 2
    a, b = spec.betas
    state["m"] = a * state.get("m", torch.zeros_like(p)) + (1 - a) * g
    state["s"] = b * state.get("s", torch.zeros_like(p)) + (1 - b) * g**2
    m, s = state["m"] / (1 - a**step), state["s"] / (1 - b**step)
    return p - spec.lr * m / (s.sqrt() + 1e-8)


def by_hand(spec: Optimizer, *, clip: float = 0.0) -> list[Tensor]:
    """Train on the batches of one epoch with updates written out."""
    data = digits()
    model = network(data).double()
    update = {"sgd": sgd}.get(spec.name, adam)
    states: list[dict[str, Any]] = [{} for _ in model.parameters()]
    for step, batch in enumerate(Batches(data.train, batch_size=16).epoch(0), start=1):
        loss = nn.functional.cross_entropy(model(batch.x.double()), batch.y)
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        norm = torch.stack([g.norm() for g in gradients]).norm()
        if clip and norm > clip:
            gradients = [g * clip / norm for g in gradients]
        with torch.no_grad():
            for p, g, state in zip(model.parameters(), gradients, states, strict=True):
                p.copy_(update(spec, p, g, state, step))
    return [p.detach() for p in model.parameters()]


def by_fit(spec: Optimizer, **settings: Any) -> list[Tensor]:
    model = network(digits())
    train(model=model, scheme="erm", optimizer=spec, schedule=Schedule("constant"), epochs=1, **settings)
    return [p.detach().double() for p in model.parameters()]


SPECS = [
    Optimizer("sgd", lr=0.1),
    Optimizer("sgd", lr=0.1, momentum=0.0, weight_decay=0.0),
    Optimizer("sgd", lr=0.1, nesterov=True),
    Optimizer("adamw", lr=0.01, weight_decay=0.1),
    Optimizer("adam", lr=0.01, weight_decay=0.1, betas=(0.8, 0.9)),
]


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: f"{spec.name}{spec.nesterov}{spec.momentum}")
def test_updates_are_the_textbooks(spec: Optimizer) -> None:
    assert_close(by_fit(spec), by_hand(spec), relative=1e-5)


def test_no_two_of_them_are_the_same() -> None:
    """The control of the comparison above."""
    results = [by_hand(spec) for spec in SPECS]
    for index, one in enumerate(results):
        for other in results[:index]:
            with pytest.raises(AssertionError):
                assert_close(one, other, relative=1e-5)
    assert {spec.name for spec in SPECS} == set(OPTIMIZERS)


def test_clipping_bounds_the_norm() -> None:
    spec = Optimizer("sgd", lr=0.5, momentum=0.0, weight_decay=0.0)
    assert_close(by_fit(spec, clip=0.05), by_hand(spec, clip=0.05), relative=1e-5)
    assert_different(by_fit(spec, clip=0.05), by_fit(spec))
    assert_same(by_fit(spec, clip=1e6), by_fit(spec))  # a bound never reached changes nothing


def test_an_optimizer_of_torch_can_be_given() -> None:
    first, second = network(digits()), network(digits())
    own = torch.optim.SGD(first.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4, fused=True)
    train(model=first, optimizer=own, schedule=Schedule("cosine"))
    train(model=second, optimizer=Optimizer(lr=0.1), schedule=Schedule("cosine"))
    assert_same(list(first.parameters()), list(second.parameters()))
