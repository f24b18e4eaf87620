"""Every preset, against the textbook: output, loss and the gradients of all parameters and the input."""

from __future__ import annotations

import dataclasses

import pytest
import textbook
import torch
from torch import Tensor, nn

import nfm
from comparing import assert_close, assert_different, gradients
from nets import Mlp, batch, build
from nfm.method.presets import PRESETS

EXACT = 1e-12  # float64: what another order of the same sums may change
STEPS = 12  # enough to visit every site


def network() -> Mlp:
    return build(Mlp).double()


def ours(net: nn.Module, x: Tensor, y: Tensor, method: nfm.NoisyFeatureMixup, step: int):
    x = x.clone().requires_grad_()
    outcome = method(net, x, y, step=step)
    return outcome, [*gradients(outcome.loss, net), x.grad]


def theirs(net: Mlp, x: Tensor, y: Tensor, values: textbook.Values):
    x = x.clone().requires_grad_()
    output, loss = textbook.step(net, x, y, values)
    return output, loss, [*gradients(loss, net), x.grad]


def method_of(name: str, weights: str = "batch", **overrides) -> nfm.NoisyFeatureMixup:
    settings = {"sites": PRESETS[name].sites or Mlp.sites, "weights": weights, "seed": 6}
    return nfm.preset(name, **(settings | overrides))


@pytest.mark.parametrize("weights", ["batch", "sample"])
@pytest.mark.parametrize("name", list(PRESETS))
def test_presets_equal_the_textbook(name: str, weights: str) -> None:
    net, (x, y) = network(), batch(7, 4, dtype=torch.float64)
    method = method_of(name, weights)
    visited = set()
    for step in range(STEPS):
        outcome, grads = ours(net, x, y, method, step)
        values = textbook.values_of(outcome.draw, textbook.features_at(net, x, outcome.draw.site))
        output, loss, expected = theirs(net, x, y, values)
        assert_close([outcome.output, outcome.loss, *grads], [output, loss, *expected], relative=EXACT)
        visited.add(outcome.draw.site)
    assert visited == set(method.sites)


@pytest.mark.parametrize("ingredient", ["site", "weights", "partners", "add", "mult"])
def test_a_broken_ingredient_shows(ingredient: str) -> None:
    net, (x, y) = network(), batch(7, 4, dtype=torch.float64)
    outcome, grads = ours(net, x, y, method_of("nfm", sites=["first"]), 3)
    values = textbook.values_of(outcome.draw, textbook.features_at(net, x, "first"))
    broken = values.without(ingredient)
    if ingredient == "site":  # noise of another site's shape does not fit
        broken = broken.without("add").without("mult")
    _, _, wrong = theirs(net, x, y, broken)
    with pytest.raises(AssertionError):
        assert_close(grads, wrong, relative=1e-3)


def test_erm_is_plain_training_to_the_bit() -> None:
    net, (x, y) = build(Mlp), batch(7, 4)
    outcome = nfm.preset("erm")(net, x, y)
    plain = nn.functional.cross_entropy(net(x), y)
    assert torch.equal(outcome.output, net(x))
    expected = gradients(plain, net)
    for one, other in zip(gradients(outcome.loss, net), expected, strict=True):
        assert torch.equal(one, other)
    assert_different(gradients(nfm.preset("mixup")(net, x, y).loss, net), expected)


def test_noise_alone_has_one_term_and_keeps_its_noise() -> None:
    """The authors' code turns the noise off too at alpha 0 (trap R2)."""
    net, (x, y) = build(Mlp), batch(7, 4)
    calls = []

    def criterion(output: Tensor, labels: Tensor) -> Tensor:
        calls.append(labels)
        return nn.functional.cross_entropy(output, labels)

    outcome = nfm.preset("noise_injection", sites=Mlp.sites)(net, x, y, criterion=criterion)
    assert len(calls) == 1
    assert torch.equal(calls[0], y)
    assert outcome.draw.weight == 1
    assert not torch.allclose(outcome.output, net(x), atol=1e-3)


def test_the_input_that_is_mixed_is_the_one_that_is_used() -> None:
    """A known bug elsewhere mixed the input and then used the unmixed one (trap R15)."""
    net, (x, y) = build(Mlp), batch(7, 4)
    seen = []
    net.stem.register_forward_pre_hook(lambda module, args: seen.append(args[0]))
    draw = nfm.preset("mixup")(net, x, y).draw
    weight = float(draw.weight)
    assert torch.allclose(seen[0], weight * x + (1 - weight) * x[draw.partner], atol=1e-6)
    assert not torch.allclose(seen[0], x, atol=1e-3)


def test_gradients_reach_the_layers_before_the_site() -> None:
    net, (x, y) = network(), batch(7, 4, dtype=torch.float64)
    outcome = method_of("nfm", sites=["second"])(net, x, y)
    assert all(gradient.abs().max() > 0 for gradient in gradients(outcome.loss, net))


@pytest.mark.parametrize("law", ["gaussian", "uniform", "rademacher"])
@pytest.mark.parametrize("granularity", ["element", "channel", "sample"])
@pytest.mark.parametrize("sparsity", [0.0, 0.5])
def test_every_kind_of_noise_equals_the_textbook(law: str, granularity: str, sparsity: float) -> None:
    net, (x, y) = network(), batch(6, 4, dtype=torch.float64)
    noise = nfm.Noise(0.4, 0.3, law, law, "beta", "uniform", sparsity=sparsity, granularity=granularity)
    method = nfm.NoisyFeatureMixup(sites=["first"], noise=noise, alpha=0.4, beta=2.0, dominant=True, seed=2)
    outcome, grads = ours(net, x, y, method, 0)
    values = textbook.values_of(outcome.draw, textbook.features_at(net, x, "first"))
    output, loss, expected = theirs(net, x, y, values)
    assert_close([outcome.output, outcome.loss, *grads], [output, loss, *expected], relative=EXACT)


def test_relative_noise_is_scaled_by_the_features_deviation_which_is_held_constant() -> None:
    net, (x, y) = network(), batch(6, 4, dtype=torch.float64)
    method = nfm.NoisyFeatureMixup(sites=["first"], noise=nfm.Noise(0.4, 0.2, relative=True), seed=2)
    outcome, grads = ours(net, x, y, method, 0)
    features = textbook.features_at(net, x, "first").detach()
    values = textbook.values_of(outcome.draw, features)
    deviation = (features - features.mean()).pow(2).mean().sqrt().float()
    scaled = dataclasses.replace(values, add=values.add * deviation)
    _, _, expected = theirs(net, x, y, scaled)
    assert_close(grads, expected, relative=1e-6)  # the deviation is a float32 number
    _, _, unscaled = theirs(net, x, y, values)
    with pytest.raises(AssertionError):
        assert_close(grads, unscaled, relative=1e-2)
