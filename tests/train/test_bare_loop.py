"""The oracle of the trainer: a bare loop in plain PyTorch gives the same weights, to the bit."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from comparing import assert_different, assert_same
from nfm.core.streams import draw_values
from nfm.core.weights import sample_beta
from nfm.randomness import fold
from nfm.train.optim import Optimizer
from nfm.train.schedule import Schedule
from running import digits, network, train

EPOCHS, BATCH, SEED, RATE = 3, 16, 5, 0.05
NOISE = {
    "erm": (0, 0),
    "mixup": (0, 0),
    "manifold_mixup": (0, 0),
    "noise_injection": (0.4, 0.2),
    "nfm": (0.4, 0.2),
}
ALPHA = {"erm": 0, "mixup": 1, "manifold_mixup": 1, "noise_injection": 0, "nfm": 1}
SITES = {
    "mlp": ["input", "hidden1", "hidden2", "hidden3"],
    "small_conv": ["input", "stage1", "stage2"],
}


def random_numbers(key: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=key))


def noisy_mixture(
    h: Tensor, *, key: int, weight: float, partner: Tensor, noise: tuple[float, float]
) -> Tensor:
    """Return (1 + mult * xi) * (weight * h + (1 - weight) * h[partner]) + add * xi'."""
    own = torch.tensor(weight)  # rounded to float32 before the rest of 1 is taken
    mixed = h if weight == 1 else own * h + (1 - own) * h[partner]
    for name, level in (("mult", noise[1]), ("add", noise[0])):
        if level:
            xi = draw_values("gaussian", tuple(h.shape), fold(fold(fold(key, "noise", 0), 0), name), h.device)
            xi = xi * level
            mixed = mixed * (1 + xi) if name == "mult" else mixed + xi
    return mixed


def bare_loop(model: nn.Module, scheme: str, name: str) -> list[Tensor]:
    """Train as a textbook would: SGD with momentum and decay, cosine rate, keyed order and keyed draws."""
    data = digits()
    x_all = data.train.images.float() / 255
    sites = SITES[name] if scheme in ("manifold_mixup", "noise_injection", "nfm") else ["input"]
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9, weight_decay=5e-4, fused=True)
    steps = len(x_all) // BATCH
    model.train()
    for step in range(EPOCHS * steps):
        order = random_numbers(fold(SEED, "order", step // steps)).permutation(len(x_all))
        chosen = torch.from_numpy(order)[step % steps * BATCH :][:BATCH]
        x, y = x_all[chosen], data.train.labels[chosen]
        site = sites[random_numbers(fold(SEED, step, 0, "site")).integers(len(sites))]
        key = fold(SEED, step, 0, "draw", site)
        weight, partner = 1.0, torch.arange(len(x))
        if ALPHA[scheme]:
            weight = float(sample_beta(1.0, 1.0, 1, fold(key, "weight"))[0])
            partner = torch.randperm(len(x), generator=torch.Generator().manual_seed(fold(key, "partner")))
        change = functools.partial(
            noisy_mixture, key=key, weight=weight, partner=partner, noise=NOISE[scheme]
        )
        for group in optimizer.param_groups:
            group["lr"] = RATE * 0.5 * (1 + np.cos(np.pi * step / (EPOCHS * steps)))
        # The input of a network that normalises is what comes out of that: levels are in its units.
        place = model.get_submodule("normalise" if site == "input" else site)
        handle = place.register_forward_hook(lambda module, args, h, change=change: change(h))
        output = model(x)
        handle.remove()
        loss = F.cross_entropy(output, y)
        if weight != 1:
            loss = weight * loss + (1 - weight) * F.cross_entropy(output, y[partner])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return list(model.state_dict().values())


def by_fit(scheme: str, name: str, **changes: Any) -> list[Tensor]:
    model = network(digits(), name, seed=SEED)
    settings = {"epochs": EPOCHS, "batch_size": BATCH, "seed": SEED} | changes
    train(
        model=model, scheme=scheme, optimizer=Optimizer(lr=RATE), schedule=Schedule("cosine"), **settings
    )  # fmt: skip
    return list(model.state_dict().values())


@pytest.mark.parametrize("name", ["mlp", "small_conv"])
@pytest.mark.parametrize("scheme", list(ALPHA))
def test_fit_gives_the_weights_of_a_bare_loop(scheme: str, name: str) -> None:
    assert_same(by_fit(scheme, name), bare_loop(network(digits(), name, seed=SEED), scheme, name))


@pytest.mark.parametrize("scheme", ["erm", "mixup", "nfm"])
def test_another_key_gives_other_weights(scheme: str) -> None:
    bare = bare_loop(network(digits(), "mlp", seed=SEED), scheme, "mlp")
    model = network(digits(), "mlp", seed=SEED)  # the same first weights: only order and draws differ
    train(
        model=model, scheme=scheme, optimizer=Optimizer(lr=RATE), schedule=Schedule("cosine"), epochs=EPOCHS,
        batch_size=BATCH, seed=SEED + 1,
    )  # fmt: skip
    assert_different(list(model.state_dict().values()), bare)


def test_fit_leaves_the_global_generators_alone(untouched_generators: None) -> None:
    train(scheme="nfm", epochs=1, options={"dropout": 0.3})


def test_two_runs_of_one_seed_are_the_same_bytes() -> None:
    assert_same(by_fit("nfm", "small_conv"), by_fit("nfm", "small_conv"))
    assert_different(by_fit("nfm", "small_conv"), by_fit("nfm", "small_conv", label_smoothing=0.1))
