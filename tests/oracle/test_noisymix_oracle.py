"""NoisyMix against three textbook NFM steps on three views, written out."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import nfm
from comparing import assert_close, assert_different, assert_same, flat, gradients
from nets import batch, build


class Net(nn.Module):
    """Two linear stages on images, without batch norm: views do not meet inside it."""

    sites = ("input", "first")

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.Tanh())
        self.head = nn.Linear(4, 3)
        with torch.no_grad():
            self.head.weight.mul_(10)  # predictions that can diverge

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.first(x).mean((2, 3)))


def pixels(size: int) -> tuple[Tensor, Tensor]:
    x, y = batch(size, 3, 6, 6)
    return x.sigmoid(), y


def by_hand(net: Net, x: Tensor, y: Tensor, method, outcome: nfm.Outcome, times=(1, 2, 3)) -> Tensor:
    """Return the loss: each view mixed with the shared partner and weight, noise drawn for it alone, then the JSD."""
    choice, draw = outcome.draw.choice, outcome.draw
    weight, partner = float(draw.weight), draw.partner
    views = [x, *method.chains.views(x, 2, method.key(draw.step, "noisymix"))]
    logits = []
    for number, (view, part) in enumerate(zip(views, choice.parts, strict=True)):
        h = net.first(view) if draw.site == "first" else view
        mixed = torch.stack([weight * h[i] + (1 - weight) * h[int(j)] for i, j in enumerate(partner)])
        silent = part.again(noise=nfm.Noise())
        assert_close([silent.apply(h)], [mixed], relative=1e-6)
        noise = nfm.method.noisymix.NOISYMIX_NOISE
        louder = type(noise)(**{**vars(noise), "add": times[number] * noise.add})
        perturbed = part.again(noise=louder).apply(h)  # the noise itself has oracles of its own
        h = perturbed if draw.site == "first" else net.first(perturbed)
        logits.append(net.head(h.mean((2, 3))))
    p = torch.stack([torch.softmax(each, 1) for each in logits])
    divergence = (p * (p / p.mean(0)).log()).sum() / 3 / len(x)
    own, other = F.cross_entropy(logits[0], y), F.cross_entropy(logits[0], y[partner])
    return weight * own + (1 - weight) * other + method.jsd * divergence


@pytest.mark.parametrize("step", range(4))
def test_a_step_equals_three_views_written_out(step: int) -> None:
    net, twin, (x, y) = build(Net), build(Net), pixels(5)
    method = nfm.scheme("noisymix", sites=Net.sites, seed=3)
    outcome = method(net, x, y, step=step)
    loss = by_hand(twin, x, y, method, outcome)
    assert_close([outcome.loss], [loss], relative=1e-5)
    assert_close([flat(gradients(outcome.loss, net))], [flat(gradients(loss, twin))], relative=1e-4)
    wrong = by_hand(twin, x, y, method, outcome, times=(1, 1, 1))  # the control: equal levels in all views
    assert abs(float((wrong - loss).detach())) > 1e-3 * float(loss.detach())


def test_views_share_site_partner_and_weight_and_not_their_noise() -> None:
    method = nfm.scheme("noisymix", sites=Net.sites, seed=3)
    choice = method.choose(build(Net), 0)
    draws = [part.draw(5) for part in choice.parts]
    for draw in draws[1:]:
        assert_same([draw.partner, draw.weight], [draws[0].partner, draws[0].weight])
    zeros = [part.again().apply(torch.zeros(5, 3, 6, 6)) for part in choice.parts]
    assert_different([zeros[0] != 0], [zeros[1] != 0])
    assert {part.site for part in choice.parts} == {choice.site}


def test_the_noise_of_a_view_has_its_level_and_sparsity() -> None:
    method = nfm.scheme("noisymix", sites="input", noise=nfm.Noise(0.5, 0.5, sparsity=0.65), seed=3)
    choice = method.choose(build(Net), 0)
    for times, part in enumerate(choice.parts, start=1):
        noise = part.apply(torch.zeros(50, 3, 20, 20))
        touched = noise != 0
        assert float(touched.double().mean()) == pytest.approx(0.35, abs=0.01)
        assert float(noise[touched].std()) == pytest.approx(0.5 * times, rel=0.02)


def test_the_defaults_are_the_authors() -> None:
    noise = nfm.scheme("noisymix").noise
    assert (noise.add, noise.mult, noise.sparsity) == (0.5, 0.5, 0.65)
    assert (noise.add_scale, noise.mult_scale, noise.mult_law) == ("beta", "beta", "uniform")
    assert nfm.scheme("noisymix").jsd == 12
