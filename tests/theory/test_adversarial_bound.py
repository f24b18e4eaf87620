"""Theorem 2 on random networks: what holds, what the printed remark leaves out, which assumptions are met."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from smooth import examples, smooth_net
from torch import Tensor, nn

from nets import build
from nfm.core.noise import Noise
from nfm.errors import UsageError
from nfm.theory import adversarial_bound
from nfm.theory.adversarial_bound import worst_loss
from nfm.theory.binary import binary_map
from nfm.theory.derivatives import site_map
from nfm.theory.gradient_terms import gradient_terms
from nfm.theory.mixture import WeightMixture
from nfm.theory.monte_carlo import sampled_loss

EPS, TOLERANCE = 1e-4, 1e-2
NOISE = Noise(0.3, 0.2)
NETWORKS = 26  # of each kind below: 104 in all


def linear_net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 6, bias=False), nn.Identity(), nn.Linear(6, 1, bias=False))


def relu_net() -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(4, 6, bias=False), nn.ReLU(), nn.Linear(6, 6, bias=False), nn.ReLU(), nn.Linear(6, 1, bias=False)
    )  # fmt: skip


KINDS = [
    (linear_net, ("input",)),
    (linear_net, ("input", "0")),
    (relu_net, ("input",)),
    (relu_net, ("input", "0")),
]


def task(make, seed: int, *, centred: bool) -> tuple[nn.Module, Tensor, Tensor]:
    """Return a network in Theta and points of one norm; in opposite pairs, so that they are centred, or not."""
    net = build(make, seed).double()
    points = F.normalize(examples(10, 4, seed=seed)[0], dim=1)
    x = torch.cat([points, -points]) if centred else F.normalize(points + 0.3, dim=1)
    return net, x, (net(x)[:, 0] > 0).long().detach()


def left_side(net: nn.Module, x: Tensor, y: Tensor, sites: tuple[str, ...]) -> float:
    """Return the NFM loss at EPS: its terms and its remainder, the mean over the sites."""
    losses = []
    for site in sites:
        places = site_map(net, x, site=site)
        terms = gradient_terms(places, y, noise=NOISE, alpha=1.0, beta=1.0)
        second = terms.r2 + NOISE.add**2 * terms.r2_add + NOISE.mult**2 * terms.r2_mult
        rest = sampled_loss(places, y, noise=NOISE, alpha=1.0, beta=1.0, eps=EPS, draws=2).remainder.value
        losses.append(terms.standard + EPS * terms.r1 + EPS**2 * second + rest)
    return sum(losses) / len(losses)


def margins(kind: int, *, centred: bool) -> dict[str, list[float]]:
    """Return (left - right) / eps^2 of every form, over random networks."""
    make, sites = KINDS[kind]
    found: dict[str, list[float]] = {"centred": [], "printed": [], "corrected": []}
    for seed in range(NETWORKS):
        net, x, y = task(make, seed, centred=centred)
        bound = adversarial_bound(net, x, y, sites=sites, noise=NOISE, eps=EPS)
        left = left_side(net, x, y, sites)
        assert bound.exact == 1
        for form, values in found.items():
            values.append((left - getattr(bound, form)) / EPS**2)
    return found


@pytest.mark.parametrize("kind", range(len(KINDS)))
def test_the_bound_holds_for_centred_features(kind: int) -> None:
    """104 random bias-free networks in Theta, points of one norm: the first order is an equality at the input."""
    found = margins(kind, centred=True)
    assert min(found["centred"]) >= -TOLERANCE
    assert min(found["corrected"]) >= -TOLERANCE


def test_the_printed_remark_fails_for_other_features_and_the_corrected_one_holds() -> None:
    found = [margins(kind, centred=False) for kind in (0, 2)]
    printed = [value for each in found for value in each["printed"]]
    corrected = [value for each in found for value in each["corrected"]]
    assert min(corrected) >= -TOLERANCE
    assert sum(value < -TOLERANCE for value in printed) >= 10
    centred = [value for each in found for value in each["centred"]]
    assert sum(value < -TOLERANCE for value in centred) >= 10  # the theorem's own form needs centred features


def test_the_radius_by_hand() -> None:
    """eps_mix = eps E[1 - w] mean over k of |grad_k f . g_k| / ||g_k|| min ||g|| / ||grad f||."""
    net, x, y = task(relu_net, 3, centred=True)
    bound = adversarial_bound(net, x, y, sites=("input", "0"), noise=NOISE, eps=0.2, alpha=2.0, beta=0.7)
    start, hidden = binary_map(net, x, y, site="input"), binary_map(net, x, y, site="0")
    size = start.gradient.norm(dim=1)
    parts = [
        ((place.gradient * place.features).sum(1).abs() / place.features.norm(dim=1))
        * place.features.norm(dim=1).min() / size
        for place in (start, hidden)
    ]  # fmt: skip
    expected = 0.2 * WeightMixture(2.0, 0.7).mean * (parts[0] + parts[1]) / 2
    assert torch.allclose(bound.radius, expected, rtol=1e-12)
    assert not torch.allclose(bound.radius, expected * 1.01, rtol=1e-3)
    assert bound.scale["input"] == pytest.approx(1)


def test_the_worst_loss_of_a_linear_network_is_exact_and_no_attack_is_worse() -> None:
    net, x, y = task(linear_net, 1, centred=True)
    start = binary_map(net, x, y, site="input")
    radius = torch.full((20,), 0.3, dtype=torch.float64)
    worst, exact = worst_loss(start, radius, steps=20, seed=0)
    slope = start.gradient[0].norm()
    f = net(x)[:, 0].detach() + (1 - 2 * y) * 0.3 * slope
    assert exact == 1
    assert worst == pytest.approx(float(F.binary_cross_entropy_with_logits(f, y.double())), rel=1e-9)
    attacked = start.ascend(radius, steps=20)
    assert float((F.softplus(attacked) - y * attacked).mean()) == pytest.approx(worst, rel=1e-6)


def test_a_curved_network_is_attacked_instead() -> None:
    net, (x, y) = smooth_net(1), examples(6, classes=2)
    start = binary_map(net, x, y, site="input")
    radius = torch.ones(6, dtype=torch.float64)
    worst, exact = worst_loss(start, radius, steps=20, seed=0)
    assert exact < 1
    assert worst > float(F.binary_cross_entropy_with_logits(net(x)[:, 0].detach(), y.double()))


def names(bound, *, met: bool) -> set[str]:
    return {assumption.name for assumption in bound.assumptions if assumption.met is met}


def test_assumptions_are_reported_as_met_or_violated() -> None:
    net, x, y = task(linear_net, 0, centred=True)
    assert names(adversarial_bound(net, x, y, sites=("input", "0"), noise=NOISE), met=False) == set()
    assert names(adversarial_bound(net, x, 1 - y, sites=("input",), noise=NOISE), met=False) == {
        "Theta: every example is on its right side"
    }
    net, x, y = task(relu_net, 0, centred=True)
    after_relu = adversarial_bound(net, x, y, sites=("1",), noise=NOISE)  # never centred
    assert names(after_relu, met=False) == {"features have mean 0"}
    smooth = adversarial_bound(smooth_net(3), *examples(6), sites=("1",), noise=NOISE)
    assert {"binary: one f, labels 0 and 1", "no second derivative", "f = grad_k f . g_k"} <= names(
        smooth, met=False
    )
    assert "VIOLATED  no second derivative at '1'" in str(smooth)


def test_two_outputs_are_one() -> None:
    net, x, y = task(relu_net, 2, centred=True)
    double = nn.Sequential(*net[:-1], nn.Linear(6, 2, bias=False).double())
    with torch.no_grad():
        double[-1].weight.copy_(torch.cat([-net[-1].weight / 2, net[-1].weight / 2]))
    settings = {"sites": ("input", "0"), "noise": NOISE, "eps": 0.01}
    one, two = adversarial_bound(net, x, y, **settings), adversarial_bound(double, x, y, **settings)
    assert torch.allclose(one.radius, two.radius)
    assert one.corrected == pytest.approx(two.corrected)
    assert one.corrected != pytest.approx(adversarial_bound(net, x, y, **{**settings, "eps": 0.5}).corrected)


def test_refusals() -> None:
    net, x, y = task(linear_net, 0, centred=True)
    with pytest.raises(UsageError, match="sites: expected at least one"):
        adversarial_bound(net, x, y, sites=(), noise=NOISE)
    with pytest.raises(UsageError, match="eps: expected 0 or greater"):
        adversarial_bound(net, x, y, sites=("input",), noise=NOISE, eps=-1)
