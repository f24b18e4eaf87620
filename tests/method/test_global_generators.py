"""Every public call leaves the global generators of Python, numpy and torch where they were."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from torch.utils.checkpoint import checkpoint

import nfm
from comparing import assert_global_generators_untouched
from nets import ConvNet, Mlp, Tokens, batch, build
from nfm.method.presets import PRESETS


@pytest.mark.usefixtures("untouched_generators")
@pytest.mark.parametrize("weights", ["batch", "sample"])
@pytest.mark.parametrize("name", list(PRESETS))
def test_training_in_both_forms(name: str, weights: str) -> None:
    net, (x, y) = build(ConvNet), batch(6, 3, 5, 5)
    sites = PRESETS[name].sites or ConvNet.sites
    method = nfm.preset(name, sites=sites, weights=weights)
    outcome = method(net, x, y)
    outcome.loss.backward()
    method.replay(outcome.draw)(net, x, y)
    outcome.draw.soft_targets(y, 3)
    with nfm.attach(net, name, sites=sites, weights=weights) as mixer:
        output = net(x)
        mixer.loss(output, y).backward()
        with mixer.replay(mixer.draw_of(output, y)):
            net(x)
        mixer.load_state_dict(mixer.state_dict())
    net.eval()(x)


@pytest.mark.usefixtures("untouched_generators")
def test_looking_at_networks() -> None:
    for net, x in (
        (build(ConvNet), batch(4, 3, 5, 5)[0]),
        (build(Tokens), torch.ones(2, 3, dtype=torch.int64)),
    ):
        sites = nfm.find_sites(net)
        nfm.NoisyFeatureMixup(sites=sites).check(net, x)


@pytest.mark.usefixtures("untouched_generators")
@pytest.mark.parametrize("law", ["gaussian", "uniform", "rademacher"])
def test_every_noise(law: str) -> None:
    noise = nfm.Noise(
        0.4, 0.2, law, law, "beta", "uniform", sparsity=0.5, granularity="channel", relative=True
    )
    nfm.NoisyFeatureMixup(sites="first", noise=noise)(build(Mlp), *batch(6, 4)).loss.backward()


@pytest.mark.usefixtures("untouched_generators")
def test_recomputation() -> None:
    for preserve in (True, False):
        net = build(
            lambda preserve=preserve: Mlp(
                call=lambda module, h: checkpoint(module, h, use_reentrant=False, preserve_rng_state=preserve)
            )
        )
        nfm.preset("nfm", sites=Mlp.sites)(net, *batch(6, 4)).loss.backward()


def test_nothing_depends_on_them_either() -> None:
    net, (x, y) = build(Mlp), batch(6, 4)
    losses = []
    for seed in (0, 1):
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002  (the global generator is what is tested)
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            losses.append(nfm.preset("nfm", sites=Mlp.sites)(net, x, y).loss)
    assert torch.equal(*losses)


def numpy_draw() -> float:
    return np.random.rand()  # noqa: NPY002


@pytest.mark.parametrize("draw", [lambda: torch.rand(()), random.random, numpy_draw])
def test_a_global_draw_would_be_seen(draw) -> None:
    """The control, for each of the three."""
    with pytest.raises(AssertionError, match="was moved"), assert_global_generators_untouched():
        draw()
