"""The attack of adversarial training against a loop over examples, and against a closed form."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import nfm
from comparing import assert_close, assert_same
from nets import ConvNet, batch, build
from nfm.core.norms import NORMS
from nfm.method.adversarial import Adversarial, KeyedNumbers


def pixels(size: int = 5) -> tuple[Tensor, Tensor]:
    x, y = batch(size, 3, 6, 6)
    return x.sigmoid(), y


def walk(net: nn.Module, x: Tensor, y: Tensor, start: Tensor, made: Adversarial) -> Tensor:
    """Return the end of the walk of one image: number by number, as the paper's equation says."""
    point = start.clone()
    for _ in range(made.steps):
        point = point.detach().requires_grad_()
        F.cross_entropy(net(point[None]), y[None]).backward()
        g = point.grad
        direction = g.sign() if made.norm == "linf" else g / math.sqrt(float((g**2).sum()))
        change = point.detach() + made.step * made.eps * direction - x
        if made.norm == "linf":
            change = change.clamp(-made.eps, made.eps)
        elif (length := math.sqrt(float((change**2).sum()))) > made.eps:
            change = change * made.eps / length
        point = (x + change).clamp(0, 1)
    return point.detach()


@pytest.mark.parametrize(("norm", "eps"), [("l2", 0.5), ("linf", 8 / 255)])
@pytest.mark.parametrize("random_start", [True, False])
def test_it_equals_a_loop_over_examples(norm: str, eps: float, random_start: bool) -> None:
    net, (x, y) = build(ConvNet), pixels()
    made = Adversarial(norm, eps, steps=4, step=0.3, random_start=random_start)
    found = made.attack(net, x, y, criterion=F.cross_entropy, key=9)
    starts = NORMS[norm].start(x, KeyedNumbers(9, len(x), x.device), eps, purpose=0) if random_start else x
    twin = build(ConvNet).eval()
    expected = torch.stack([walk(twin, x[i], y[i], starts[i], made) for i in range(len(x))])
    assert_close([found], [expected], relative=1e-4)
    wrong = torch.stack(
        [walk(twin, x[i], (y[i] + 1) % 3, starts[i], made) for i in range(len(x))]
    )  # the control
    assert float((found - wrong).abs().max()) > 10 * float((found - expected).abs().max())


@pytest.mark.parametrize(("norm", "eps"), [("l2", 0.4), ("linf", 0.05)])
def test_a_linear_network_has_a_closed_form(norm: str, eps: float) -> None:
    """The worst change of a linear classifier of two classes is eps times the steepest direction of its weights."""
    net = build(lambda: nn.Sequential(nn.Flatten(), nn.Linear(12, 2)))
    x, y = torch.full((4, 3, 2, 2), 0.5), torch.tensor([0, 1, 0, 1])
    found = Adversarial(norm, eps, steps=80).attack(net, x, y, criterion=F.cross_entropy, key=1)
    towards = (net[1].weight[1] - net[1].weight[0]).detach()
    direction = towards.sign() if norm == "linf" else towards / towards.norm()
    sign = torch.where(y == 0, 1.0, -1.0)[:, None]
    assert_close([(found - x).flatten(1)], [sign * eps * direction], relative=1e-4)


def test_a_step_is_a_plain_one_on_the_attacked_batch() -> None:
    net, twin, (x, y) = build(ConvNet), build(ConvNet), pixels()
    scheme = nfm.scheme("adversarial", seed=3, steps=4)
    outcome = scheme(net, x, y, step=2)
    worst = scheme.attacker.attack(twin, x, y, criterion=F.cross_entropy, key=scheme.key(2, "attack"))
    expected = twin(worst)
    assert_same([outcome.output, outcome.loss], [expected, F.cross_entropy(expected, y)])


def test_with_nfm_the_attacked_batch_is_mixed() -> None:
    net, twin, (x, y) = build(ConvNet), build(ConvNet), pixels()
    scheme = nfm.scheme("adversarial + nfm", sites=ConvNet.sites, seed=3, steps=4)
    outcome = scheme(net, x, y, step=2)
    worst = scheme.attacker.attack(twin, x, y, criterion=F.cross_entropy, key=scheme.key(2, "attack"))
    alone = nfm.scheme("nfm", sites=ConvNet.sites, seed=3)
    expected = alone(twin, worst, y, step=2)
    assert_same([outcome.output, outcome.loss], [expected.output, expected.loss])
    clean = alone(build(ConvNet), x, y, step=2)  # the control
    assert float((clean.output - outcome.output).detach().abs().max()) > 1e-4
