"""What every preset promises, and every law of noise."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import nfm
from comparing import assert_different, assert_same, gradients, hooks_in
from nets import Mlp, batch, build
from nfm.core.noise import LAWS, SCALE_LAWS
from nfm.method.presets import PRESETS

EVERY = pytest.mark.parametrize("name", list(PRESETS))


def method(name: str, **settings) -> nfm.NoisyFeatureMixup:
    return nfm.preset(name, **({"sites": PRESETS[name].sites or Mlp.sites, "seed": 1} | settings))


@EVERY
def test_a_step_leaves_the_batch_as_it_was(name: str) -> None:
    net, (x, y) = build(Mlp), batch(6, 4)
    before = [x.clone(), y.clone()]
    for _ in range(4):
        method(name)(net, x, y).loss.backward()
    assert_same([x, y], before)
    assert hooks_in(net) == 0


@EVERY
def test_the_same_key_gives_the_same_step(name: str) -> None:
    net, (x, y) = build(Mlp), batch(6, 4)
    first, second = (method(name)(net, x, y, step=3) for _ in range(2))
    assert_same(
        [first.output, first.loss, first.draw.partner], [second.output, second.loss, second.draw.partner]
    )
    assert_same(gradients(first.loss, net), gradients(second.loss, net))
    if name != "erm":
        assert_different([first.output], [method(name, seed=2)(net, x, y, step=3).output])


@EVERY
def test_the_outcome_holds_what_a_caller_needs(name: str) -> None:
    net, (x, y) = build(Mlp), batch(6, 4)
    outcome = method(name)(net, x, y)
    assert outcome.loss.shape == ()
    assert outcome.loss.requires_grad
    assert outcome.output.shape == (6, 3)
    assert outcome.draw.site in (PRESETS[name].sites or Mlp.sites)
    assert outcome.draw.step == 0
    own, partners, weight = outcome.draw.pairs(y)
    assert_same([own, partners], [y, y[outcome.draw.partner]])
    assert 0 <= float(weight) <= 1
    soft = outcome.draw.soft_targets(y, 3)
    assert torch.allclose(soft.sum(1), torch.ones(6))
    assert torch.allclose(F.cross_entropy(outcome.output, soft), outcome.loss, atol=1e-6)


@EVERY
def test_it_trains(name: str) -> None:
    """Three clouds can be told apart after a few steps, whatever the scheme."""
    net = build(lambda: Mlp(width=16))
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(64) % 3
    x = torch.randn(64, 4, generator=generator) + 3 * F.one_hot(y, 4)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.02)
    scheme = method(name)
    for _ in range(60):
        optimizer.zero_grad()
        scheme(net, x, y).loss.backward()
        optimizer.step()
    accuracy = (net(x).argmax(1) == y).float().mean()
    assert accuracy > 0.9
    assert (build(lambda: Mlp(width=16))(x).argmax(1) == y).float().mean() < 0.8


@EVERY
def test_a_network_that_declares_its_sites_needs_no_names(name: str) -> None:
    net, (x, y) = build(Mlp), batch(6, 4)
    net.default_sites = ("stem", "first")
    sites = {nfm.preset(name, seed=seed)(net, x, y).draw.site for seed in range(12)}
    assert sites == (set(PRESETS[name].sites) if PRESETS[name].sites else {"stem", "first"})


@pytest.mark.parametrize("law", list(LAWS))
@pytest.mark.parametrize("scale", list(SCALE_LAWS))
@pytest.mark.parametrize("granularity", ["element", "channel", "sample"])
def test_level_0_is_the_identity_and_any_other_is_not(law: str, scale: str, granularity: str) -> None:
    x = batch(5, 3, 4)[0]

    def noisy(level: float) -> torch.Tensor:
        noise = nfm.Noise(level, level, law, law, scale, scale, granularity=granularity, sparsity=0.2)
        return nfm.NoisyFeatureMixup(alpha=0, noise=noise).choose(["input"], step=0).apply(x)

    assert torch.equal(noisy(0.0), x)
    assert not torch.equal(noisy(0.3), x)
    assert torch.equal(noisy(0.3), noisy(0.3))
