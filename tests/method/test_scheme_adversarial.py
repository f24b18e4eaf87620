"""Adversarial training: the ball, the pixels, the network's mode, and what is refused."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import nfm
from comparing import assert_different, assert_same
from nets import ConvNet, Mlp, batch, build
from nfm.errors import ShapeError, UsageError
from nfm.method.adversarial import Adversarial, KeyedNumbers, rounded_towards

BALLS = pytest.mark.parametrize(("norm", "eps"), [("l2", 0.5), ("linf", 8 / 255)])


def pixels(size: int = 6):
    x, y = batch(size, 3, 6, 6)
    return x.sigmoid().round(decimals=1), y  # some pixels at 0 and 1


def attack(net: nn.Module, x, y, key: int = 4, **settings):
    return Adversarial(**settings).attack(net, x, y, criterion=F.cross_entropy, key=key)


@BALLS
@pytest.mark.parametrize("mode", ["eval", "train"])
def test_it_stays_in_the_ball_and_the_pixels_and_raises_the_loss(norm: str, eps: float, mode: str) -> None:
    net, (x, y) = build(ConvNet), pixels()
    worst = attack(net, x, y, norm=norm, eps=eps, mode=mode)
    change = (worst - x).flatten(1)
    size = change.norm(dim=1) if norm == "l2" else change.abs().amax(1)
    assert float(size.max()) <= eps * (1 + 1e-5)
    assert float(size.min()) > 0.5 * eps
    assert 0 <= float(worst.min()) <= float(worst.max()) <= 1
    net.train(mode == "train")
    with torch.no_grad():
        assert float(F.cross_entropy(net(worst), y)) > float(F.cross_entropy(net(x), y))


@BALLS
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_batches_of_half_precision_stay_in_the_ball(norm: str, eps: float, dtype: torch.dtype) -> None:
    net, (x, y) = build(ConvNet).to(dtype), pixels()
    x = x.to(dtype)
    worst = attack(net, x, y, norm=norm, eps=eps)
    change = (worst.double() - x.double()).flatten(1)
    size = change.norm(dim=1) if norm == "l2" else change.abs().amax(1)
    assert worst.dtype == dtype
    assert float(size.max()) <= eps * (1 + 1e-5)
    assert float(size.min()) > 0.5 * eps
    assert 0 <= float(worst.min()) <= float(worst.max()) <= 1


def test_rounding_to_the_nearest_would_leave_the_ball() -> None:
    """The control: in bfloat16 the nearest value may be farther away than the point was."""
    x = torch.full((1, 100), 0.7).bfloat16()
    point = x.float() + torch.linspace(-8 / 255, 8 / 255, 100)
    far, near = (
        (rounded.float() - x.float()).abs() for rounded in (point.bfloat16(), rounded_towards(x, point))
    )
    limit = (point - x.float()).abs()
    assert bool((far > limit).any())
    assert bool((near <= limit).all())
    assert float((limit - near).max()) < 2**-8  # one unit in the last place of numbers up to 1


@pytest.mark.parametrize("mode", ["eval", "train"])
def test_the_global_generator_moves_as_in_a_plain_step(mode: str) -> None:
    x, y = pixels()
    net = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(108, 3))
    with torch.random.fork_rng(devices=[]):
        states = []
        for text in ("erm", "adversarial"):
            torch.default_generator.manual_seed(1)
            settings = {"mode": mode} if text == "adversarial" else {}
            before = torch.get_rng_state()
            nfm.scheme(text, **settings)(net, x, y)
            states.append(torch.get_rng_state())
    assert_same(states[:1], states[1:])
    assert_different([before], states[:1])  # dropout did draw


def test_one_loss_an_example_is_attacked_by_its_sum() -> None:
    net, (x, y) = build(ConvNet), pixels()
    each = nn.CrossEntropyLoss(reduction="none")
    found = Adversarial().attack(net, x, y, criterion=each, key=4)
    torch.testing.assert_close(found, attack(net, x, y))
    assert_different([found], [attack(net, x, (y + 1) % 3)])
    assert nfm.scheme("adversarial")(net, x, y, criterion=each).loss.shape == (6,)


def test_pixels_outside_by_rounding_are_clamped() -> None:
    net, (x, y) = build(ConvNet), pixels()
    x[0, 0, 0, :2] = torch.tensor([0.0, 1.0])
    outside = x.clone()
    outside[0, 0, 0, :2] = torch.tensor([-1e-6, 1 + 1e-6])
    assert_same([attack(net, outside, y)], [attack(net, x, y)])
    outside[0, 0, 0, 1] = 1 + 3e-5
    with pytest.raises(ShapeError, match=r"got values from -1e-06 to 1\.00003"):
        attack(net, outside, y)


@pytest.mark.parametrize("mode", ["eval", "train"])
def test_the_network_is_left_as_it_was(mode: str) -> None:
    """Modes, running statistics and gradients; also when the attack fails halfway."""
    net, (x, y) = build(ConvNet), pixels()
    net.second.eval()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    modes = [module.training for module in net.modules()]
    calls = []

    def failing(output, target):
        calls.append(output)
        if len(calls) == 3:
            raise ArithmeticError
        return F.cross_entropy(output, target)

    attack(net, x, y, mode=mode)
    with pytest.raises(ArithmeticError):
        Adversarial(mode=mode).attack(net, x, y, criterion=failing, key=1)
    assert_same(list(net.state_dict().values()), list(before.values()))
    assert [module.training for module in net.modules()] == modes
    assert all(parameter.grad is None for parameter in net.parameters())


def test_the_mode_is_that_of_the_network_under_attack() -> None:
    net, (x, y) = build(ConvNet), pixels()
    seen = []
    net.first[1].register_forward_hook(lambda module, args, output: seen.append(module.training))
    attack(net, x, y, mode="eval", steps=4)
    attack(net, x, y, mode="train", steps=4)
    assert seen == [False] * 4 + [True] * 4
    assert_different([attack(net, x, y, mode="eval")], [attack(net, x, y, mode="train")])


def test_the_start_is_keyed_and_uniform_in_the_ball() -> None:
    net, (x, y) = build(ConvNet), pixels()
    assert_same([attack(net, x, y)], [attack(net, x, y)])
    assert_different([attack(net, x, y, key=5)], [attack(net, x, y, key=4)])
    numbers = KeyedNumbers(1, 4000, torch.device("cpu"))
    uniform = numbers.uniform((3,))
    assert 0 <= float(uniform.min()) < float(uniform.max()) < 1
    assert float(uniform.mean()) == pytest.approx(0.5, abs=5 / math.sqrt(12 * uniform.numel()))
    assert float(numbers.normal((3,)).std()) == pytest.approx(1, abs=0.03)
    assert_different([numbers.uniform((3,), purpose=1)], [uniform])


def test_eps_0_changes_nothing_and_eps_rises_on_a_ramp() -> None:
    net, (x, y) = build(ConvNet), pixels()
    assert_same([attack(net, x, y, eps=0.0)], [x])
    rising = nfm.scheme("adversarial + nfm", sites=ConvNet.sites, eps=0.8, ramp=4)
    assert rising.at(1).attacker.eps == 0.2
    assert rising.at(1).main.noise == nfm.Noise(0.1, 0.05)


def test_smoothed_labels_are_for_training_and_not_for_the_attack() -> None:
    net, (x, y) = build(ConvNet), pixels()
    plain, smooth = (nfm.scheme(text, seed=1) for text in ("adversarial", "adversarial + label_smoothing"))
    one, other = (scheme(build(ConvNet), x, y, step=0) for scheme in (plain, smooth))
    assert_same([one.output], [other.output])
    assert_different([one.loss], [other.loss])
    assert net.training


def test_what_is_attached_does_not_act_in_the_attack() -> None:
    x, y = pixels()
    expected = attack(build(ConvNet), x, y, mode="train")
    net = build(ConvNet)
    with nfm.attach(net, "nfm", sites=ConvNet.sites) as mixer:
        assert_same([attack(net, x, y, mode="train")], [expected])
        assert mixer.method.step == 0


def test_vectors_can_be_attacked_too() -> None:
    x, y = batch(6, 4)
    worst = attack(build(Mlp), x.sigmoid(), y, eps=0.1)
    assert worst.shape == x.shape


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"norm": "l1"}, "unknown norm 'l1'; known: linf, l2"),
        ({"eps": -1}, "eps: expected pixels"),
        ({"eps": "8/255"}, "eps: expected pixels"),
        ({"steps": 0}, "expected steps of at least 1"),
        ({"steps": 2.5}, "expected steps of at least 1"),
        ({"step": 0}, "a step above 0"),
        ({"step": "x"}, "a step above 0, got 7, 'x'"),
        ({"step": True}, "a step above 0"),
        ({"norm": 4}, "unknown norm '4'; known: linf, l2"),
        ({"norm": ["l2"]}, "unknown norm .*; known: linf, l2"),
        ({"random_start": "no"}, "random_start: expected True or False, got 'no'"),
        ({"random_start": 1}, "random_start: expected True or False, got 1"),
        ({"steps": 3}, r"3 steps of 0\.25 eps cannot reach the surface of the ball.*0\.333 or more"),
        ({"mode": "frozen"}, "mode: expected 'eval' or 'train'"),
    ],
)
def test_bad_settings_are_refused(settings: dict, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        nfm.scheme("adversarial", **settings)


@pytest.mark.parametrize(("norm", "eps"), [("linf", 8.0), ("l2", 20.0)])
def test_an_eps_in_other_units_is_refused(norm: str, eps: float) -> None:
    with pytest.raises(ShapeError, match=f"expected an {norm} eps up to .*pixels of .*/255"):
        nfm.scheme("adversarial", norm=norm, eps=eps).check(build(ConvNet), pixels()[0])


def test_what_are_no_pixels_is_refused() -> None:
    net, (x, y) = build(ConvNet), batch(6, 3, 6, 6)
    with pytest.raises(ShapeError, match=r"adversarial: expected pixels in \[0, 1\]"):
        nfm.scheme("adversarial")(net, x, y)


def test_a_network_without_a_gradient_is_refused() -> None:
    class Rounded(nn.Module):
        def forward(self, x):
            return torch.ones(len(x), 3)

    with pytest.raises(UsageError, match="a gradient in its pixels, got none"):
        attack(Rounded(), *pixels())


def test_two_attacks_are_refused() -> None:
    with pytest.raises(UsageError, match="leaves the ball of the first"):
        nfm.scheme("adversarial + adversarial + nfm")
