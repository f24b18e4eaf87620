"""A scheme that mixes nothing and adds no noise takes a plain step, whatever the network's inputs are."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import nfm
from comparing import assert_different, assert_same, gradients
from nets import Mlp, Tokens, batch, build
from nfm.errors import SiteError


def tokens() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 11, (6, 5), generator=generator), torch.arange(6) % 3


@pytest.mark.parametrize("text", ["erm", "erm + label_smoothing", "label_smoothing"])
def test_whole_numbers_as_inputs(text: str) -> None:
    net, (x, y) = build(Tokens), tokens()
    made = nfm.scheme(text)
    made.check(net, x)
    level = 0.1 if "smoothing" in text else 0.0
    expected = F.cross_entropy(net(x), y, label_smoothing=level)
    outcome = made(net, x, y)
    assert_same(gradients(outcome.loss, net), gradients(expected, net))
    assert outcome.draw.levels == (0.0, 0.0)
    assert made.step == 1


def test_what_mixes_still_refuses_whole_numbers() -> None:
    """The control: the plain step is for schemes that do nothing."""
    net, (x, y) = build(Tokens), tokens()
    for settings in ({"alpha": 1.0}, {"noise": nfm.Noise(0.1)}):
        with pytest.raises(SiteError, match="one floating-point tensor"):
            nfm.scheme("erm", **settings)(net, x, y)
        with pytest.raises(SiteError, match="one floating-point tensor"):
            nfm.scheme("erm", **settings).check(net, x)


def test_plain_steps_inside_a_choice() -> None:
    net, (x, y) = build(Tokens), tokens()
    made = nfm.scheme("0.5 erm | 0.5 manifold_mixup", manifold_mixup={"sites": "encoder.layers.0"}, seed=1)
    plan = made.check(net, x)
    assert [row.site for row in plan.rows] == ["encoder.layers.0"]
    plain = net(x)
    same = [torch.equal(made(net, x, y, step=step).output, plain) for step in range(12)]
    assert same == [made.at(step) is made.schemes[0] for step in range(12)]
    assert set(same) == {True, False}


def test_a_plain_step_is_repeated_by_its_draw() -> None:
    net, (x, y) = build(Tokens), tokens()
    made = nfm.scheme("0.5 erm | 0.5 manifold_mixup", manifold_mixup={"sites": "encoder.layers.0"}, seed=1)
    for step in range(6):
        outcome = made(net, x, y, step=step)
        assert outcome.draw.step == step
        assert_same([made(net, x, y, draw=outcome.draw).output], [outcome.output])


def test_attached_it_leaves_the_network_plain() -> None:
    net, (x, y) = build(Tokens), tokens()
    plain = net(x)
    with nfm.attach(net, "erm") as mixer:
        output = net(x)
        assert_same([output, mixer.loss(output, y)], [plain, F.cross_entropy(plain, y)])
        assert mixer.method.step == 1
    with nfm.attach(net, "nfm", sites="encoder.layers.0"):
        assert_different([net(x)], [plain])


def test_what_is_attached_does_not_act_in_a_plain_step() -> None:
    net, (x, y) = build(Mlp), batch(6, 4)
    plain = net(x)
    with nfm.attach(net, "nfm", sites=Mlp.sites):
        assert_same([nfm.scheme("erm")(net, x, y).output], [plain])
        assert_different([net(x)], [plain])


def test_the_plan_says_so() -> None:
    assert "nothing is mixed" in str(nfm.scheme("erm").check(build(Mlp), batch(6, 4)[0]))
    assert "one of 1 sites" in str(nfm.scheme("mixup").check(build(Mlp), batch(6, 4)[0]))
