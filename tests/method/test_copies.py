"""Copies of an attached network are plain networks: deep copies, pickles, averages, exports."""

from __future__ import annotations

import copy
import io
import pickle

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import nfm
from comparing import assert_same, gradients
from nets import ConvNet, batch, build


def reloaded(model: nn.Module) -> nn.Module:
    """Return `model` after torch.save and torch.load of the whole module."""
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


COPIES = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda model: pickle.loads(pickle.dumps(model)),
    "torch.save": reloaded,
    "averaged": lambda model: AveragedModel(model).module,
    "copy of a copy": lambda model: copy.deepcopy(copy.deepcopy(model)),
}


@pytest.mark.parametrize("way", list(COPIES))
@pytest.mark.parametrize("when", ["fresh", "trained"])
def test_copies_are_plain_networks(way: str, when: str) -> None:
    net, plain, (x, y) = build(ConvNet), build(ConvNet), batch(6, 3, 5, 5)
    with nfm.attach(net, "nfm", sites=ConvNet.sites) as mixer:
        if when == "trained":
            mixer.loss(net(x), y).backward()
        made = COPIES[way](net)
        plain.load_state_dict(net.state_dict())
        assert_same(list(made.state_dict().values()), list(plain.state_dict().values()))
        made.train()
        assert_same([made(x)], [plain(x)])
        assert_same(
            gradients(F.cross_entropy(made(x), y), made), gradients(F.cross_entropy(plain(x), y), plain)
        )
        assert not torch.equal(net(x), plain(x)), "the control: the original mixes"


def test_a_copy_made_inside_a_functional_step_is_plain() -> None:
    net, (x, y) = build(ConvNet), batch(6, 3, 5, 5)
    made = []
    net.first.register_forward_hook(lambda *_: made or made.append(copy.deepcopy(net)))
    nfm.NoisyFeatureMixup(sites="second")(net, x, y)
    made[0].first._forward_hooks.clear()
    assert_same([made[0](x)], [build(ConvNet)(x)])


def test_a_copy_can_be_attached_itself() -> None:
    net, (x, y) = build(ConvNet), batch(6, 3, 5, 5)
    method = nfm.preset("nfm", sites=ConvNet.sites, seed=3)
    with nfm.attach(net, copy.deepcopy(method)) as first:
        student = copy.deepcopy(net)
        with nfm.attach(student, copy.deepcopy(method)) as second:
            assert_same([first.loss(net(x), y)], [second.loss(student(x), y)])


def test_an_average_equals_its_closed_form_and_never_mixes() -> None:
    net, (x, y) = build(ConvNet), batch(6, 3, 5, 5)
    average = AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=True)
    expected = [p.detach().double().clone() for p in net.parameters()]
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with nfm.attach(net, "nfm", sites=ConvNet.sites) as mixer:
        late = AveragedModel(net)
        for step in range(20):
            optimizer.zero_grad()
            mixer.loss(net(x), y).backward()
            optimizer.step()
            average.update_parameters(net)
            now = [p.detach().double() for p in net.parameters()]
            expected = now if step == 0 else [0.9 * a + 0.1 * b for a, b in zip(expected, now, strict=True)]
            average(x), late(x)
        assert mixer.method.step == 20
        for parameter, value in zip(average.module.parameters(), expected, strict=True):
            assert torch.allclose(parameter.double(), value.double(), atol=1e-6)


def test_an_exported_network_is_the_plain_one() -> None:
    net, (x, _) = build(ConvNet), batch(6, 3, 5, 5)
    plain = build(ConvNet).eval()
    with nfm.attach(net, "nfm", sites=ConvNet.sites):
        exported = torch.export.export(net.eval(), (x,)).module()
    assert torch.equal(exported(x), plain(x))


@pytest.mark.parametrize("way", [copy.deepcopy, lambda method: pickle.loads(pickle.dumps(method))])
def test_a_copied_method_goes_on_by_itself(way) -> None:
    method = nfm.preset("nfm", sites=ConvNet.sites, seed=9)
    net, (x, y) = build(ConvNet), batch(6, 3, 5, 5)
    method(net, x, y)
    made = way(method)
    assert repr(made) == repr(method)
    assert made.state_dict() == method.state_dict() == {"seed": 9, "step": 1}
    assert torch.equal(made(build(ConvNet), x, y).loss, method(build(ConvNet), x, y).loss)
    made.claim()
    assert method.step == 2
