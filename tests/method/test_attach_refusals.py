"""What cannot be attached to, and outputs whose loss cannot be known: refused, never trained silently."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn

import nfm
from comparing import hooks_in
from nets import Mlp, batch, build
from nfm.errors import AttachError, ShapeError, UsageError


def method(**settings) -> nfm.NoisyFeatureMixup:
    return nfm.preset("nfm", **({"sites": Mlp.sites, "seed": 4} | settings))


def test_outputs_of_two_passes_in_one_are_refused() -> None:
    net, (x, y) = build(Mlp), batch(6, 4)
    with nfm.attach(net, method()) as mixer, pytest.raises(AttachError, match="made by two forward passes"):
        mixer.loss(net(x) + net(x), y)


def test_nested_and_repeated_attach_are_refused() -> None:
    inner = build(Mlp)
    outer = nn.Sequential(inner, nn.Linear(3, 3))
    mixer = nfm.attach(inner, method())
    for model in (inner, outer, inner.first):
        with pytest.raises(AttachError, match="attached to already"):
            nfm.attach(model, "mixup")
    mixer.detach()
    mixer = nfm.attach(outer, "mixup")
    with pytest.raises(AttachError, match="attached to already"):
        nfm.attach(inner, "mixup")
    mixer.detach()
    nfm.attach(inner, "mixup").detach()


def test_a_refused_attach_leaves_nothing_behind() -> None:
    net = build(Mlp)
    with pytest.raises(ValueError, match="did you mean 'first'"):
        nfm.attach(net, "nfm", sites=["frist"])
    assert hooks_in(net) == 0
    nfm.attach(net, method()).detach()


def test_data_parallel_and_scripts_are_refused_by_name() -> None:
    (x, y) = batch(6, 4)
    parallel = nn.DataParallel(build(Mlp))
    for call in (
        lambda: nfm.attach(parallel),
        lambda: method()(parallel, x, y),
        lambda: method().check(parallel, x),
    ):
        with pytest.raises(AttachError, match=r"nn\.DataParallel is not supported.*use DDP"):
            call()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        script = torch.jit.trace(build(Mlp), x)
    with pytest.raises(AttachError, match="TorchScript"):
        nfm.attach(script, method())


def test_a_replica_of_an_attached_network_is_refused() -> None:
    """What DataParallel makes of a network that was attached first."""
    net, (x, _) = build(Mlp), batch(6, 4)
    with nfm.attach(net, method()):
        net._is_replica = True
        with pytest.raises(AttachError, match="use DDP"):
            net(x)


@pytest.mark.parametrize("model", [lambda x: x, None, "resnet18"])
def test_what_is_no_module_is_refused(model) -> None:
    with pytest.raises(AttachError, match=r"expected a torch\.nn\.Module"):
        nfm.attach(model)


def test_settings_need_a_presets_name() -> None:
    with pytest.raises(UsageError, match="settings with a preset's name only, got alpha"):
        nfm.attach(build(Mlp), method(), alpha=0.2)
    with pytest.raises(UsageError, match=r"unknown scheme 'nfmm'.*did you mean 'nfm'"):
        nfm.attach(build(Mlp), "nfmm")


def test_outputs_that_met_no_mixing_are_refused() -> None:
    net, (x, y) = build(Mlp), batch(6, 4)
    early = net(x)
    with nfm.attach(net, method()) as mixer:
        with pytest.raises(AttachError, match="met no mixing, though Mlp is training"):
            mixer.loss(early, y)
        with pytest.raises(AttachError, match="met no mixing"):
            mixer.loss(build(Mlp, seed=1)(x), y)
        net.eval()
        late = net(x)
        net.train()
        with pytest.raises(AttachError, match="met no mixing"):
            mixer.loss(late, y)


def test_labels_of_another_batch_are_refused() -> None:
    net, (x, y) = build(Mlp), batch(6, 4)
    with nfm.attach(net, method()) as mixer, pytest.raises(ShapeError, match="expected a batch of 6"):
        mixer.loss(net(x), y[:5])


def test_a_replaced_module_is_noticed() -> None:
    net, (x, _) = build(Mlp), batch(6, 4)
    with nfm.attach(net, method(sites=["first"])):
        net.first = nn.Sequential(nn.Linear(8, 8))
        with pytest.raises(ValueError, match=r"expected site 'first' to fire exactly once.*it fired 0 times"):
            net(x)
