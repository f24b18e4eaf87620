"""Theorem 1: every term against slow oracles, the remainder against its order."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product

import pytest
import torch
import torch.nn.functional as F
from smooth import examples, smooth_net
from torch import Tensor, nn

import nfm
from nets import ConvNet, batch, build
from nfm.core.noise import Noise
from nfm.errors import UsageError
from nfm.theory import expansion
from nfm.theory.curvature_terms import curvature_terms
from nfm.theory.derivatives import site_map
from nfm.theory.gradient_terms import gradient_terms
from nfm.theory.mixture import WeightMixture
from nfm.theory.monte_carlo import sampled_loss

ALPHA, BETA = 2.0, 0.7
EPS = [2.0**-power for power in range(1, 9)]


def tails(net: nn.Sequential, site: str) -> tuple[nn.Module, nn.Module]:
    """Return g_k and f_k of a sequential network."""
    cut = 0 if site == "input" else int(site) + 1
    return net[:cut], net[cut:]


def loss_of(outputs: Tensor, y: Tensor) -> Tensor:
    if outputs.shape[-1] == 1:
        return F.binary_cross_entropy_with_logits(outputs[..., 0], y.double(), reduction="none")
    return F.cross_entropy(outputs, y, reduction="none")


def expected_loss(tail: nn.Module, z: Tensor, y: Tensor, noise: Noise) -> Callable[[float], float]:
    """Return L(eps) by enumeration: all pairs, all Rademacher noises, a two-point weight of the same moments."""
    law = WeightMixture(ALPHA, BETA)
    spread = math.sqrt(law.square - law.mean**2)
    features = z.shape[1]
    signs = [torch.tensor(values, dtype=z.dtype) for values in product((-1.0, 1.0), repeat=features)]
    adds = [noise.add * sign for sign in signs] if noise.add else [torch.zeros(features, dtype=z.dtype)]
    mults = [noise.mult * sign for sign in signs] if noise.mult else [torch.zeros(features, dtype=z.dtype)]

    def loss(eps: float) -> float:
        total = []
        for rest, add, mult, shift in product(
            (law.mean - spread, law.mean + spread), adds, mults, range(len(z))
        ):
            other = z.roll(shift, 0)
            mixed = z + eps * rest * (other - z)
            total.append(loss_of(tail((1 + eps * mult) * mixed + eps * add), y).mean())
        return float(torch.stack(total).mean())

    return loss


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("site", ["input", "1"])
@pytest.mark.parametrize("levels", [(0.0, 0.0), (0.4, 0.0), (0.0, 0.3)])
def test_terms_agree_with_finite_differences_of_the_loss(
    outputs: int, site: str, levels: tuple[float, float]
) -> None:
    net = smooth_net(outputs, features=3)
    x, y = examples(4, classes=max(outputs, 2))
    noise = Noise(*levels, add_law="rademacher", mult_law="rademacher")
    head, tail = tails(net, site)
    with torch.no_grad():
        loss = expected_loss(tail, head(x), y, noise)
        step = 2.0**-6
        ahead, here, behind = loss(step), loss(0.0), loss(-step)
        ahead2, behind2 = loss(2 * step), loss(-2 * step)
    found = expansion(net, x, y, site=site, noise=noise, alpha=ALPHA, beta=BETA, exact=True, draws=2).terms
    slope = (8 * (ahead - behind) - (ahead2 - behind2)) / (12 * step)
    bend = (16 * (ahead + behind) - (ahead2 + behind2) - 30 * here) / (24 * step**2)
    assert found.first.standard == pytest.approx(here, rel=1e-12)
    assert found.first.r1 == pytest.approx(slope, rel=1e-4, abs=1e-8)
    assert found.r2_total + found.r3_total.value == pytest.approx(bend, rel=1e-4, abs=1e-8)
    assert found.r2_total != pytest.approx(bend, rel=1e-3)  # without R3 it is another number
    assert found.first.r1_printed != pytest.approx(slope, rel=1e-1)  # h'(f - y), as printed


def slow_terms(tail: nn.Module, z: Tensor, y: Tensor, gram_add: Tensor, gram_mult: Tensor) -> list[float]:
    """Return R2, R2_add, R2_mult, R3, R3_add, R3_mult with every matrix written out."""
    law, total = WeightMixture(ALPHA, BETA), torch.zeros(6, dtype=torch.float64)
    for own, label in zip(z, y, strict=True):
        away = z - own
        grams = [law.square * away.T @ away / len(z), gram_add, gram_mult * torch.outer(own, own)]
        outputs = tail(own)
        p, one_hot = outputs.softmax(0), F.one_hot(label, len(outputs)).double()
        jacobian = torch.autograd.functional.jacobian(tail, own)
        bend = torch.diag(p) - torch.outer(p, p)
        hessian = sum(
            (p[c] - one_hot[c]) * torch.autograd.functional.hessian(lambda h, c=c: tail(h)[c], own)
            for c in range(len(outputs))
        )
        total[:3] += torch.stack([(jacobian.T @ bend @ jacobian * gram).sum() for gram in grams]).detach()
        total[3:] += torch.stack([(hessian * gram).sum() for gram in grams]).detach()
    return (total / (2 * len(z))).tolist()


NOISES = {
    "gaussian": Noise(0.4, 0.2),
    "authors": Noise.authors(0.4, 0.2),
    "uniform and sparse": Noise(0.4, 0.2, "uniform", "uniform", sparsity=0.4),
    "one value an example": Noise(0.4, 0.2, granularity="sample"),
    "relative": Noise(0.4, 0.2, relative=True),
}


@pytest.mark.parametrize("name", NOISES)
@pytest.mark.parametrize("site", ["input", "1"])
def test_every_term_of_any_noise_law_by_written_out_matrices(name: str, site: str) -> None:
    noise, net, (x, y) = NOISES[name], smooth_net(), examples(6)
    head, tail = tails(net, site)
    z = head(x).detach()
    size = z.shape[1]
    gram = torch.ones(size, size).double() if noise.granularity == "sample" else torch.eye(size).double()
    add_rms, mult_rms = noise.rms()
    slow = slow_terms(tail, z, y, (add_rms / 0.4) ** 2 * gram, (mult_rms / 0.2) ** 2 * gram)
    places = site_map(net, x, site=site)
    settings = {"noise": noise, "alpha": ALPHA, "beta": BETA}
    first, second = gradient_terms(places, y, **settings), curvature_terms(places, y, exact=True, **settings)
    found = [
        first.r2, first.r2_add, first.r2_mult, second.r3.value, second.r3_add.value, second.r3_mult.value,
    ]  # fmt: skip
    assert found == pytest.approx(slow, rel=1e-9)
    other = gradient_terms(
        places, y, noise=Noise(0.4, 0.2, "uniform", granularity="channel"), alpha=1.0, beta=1.0
    )
    assert [other.r2, other.r2_add] != pytest.approx(slow[:2], rel=1e-3)


def test_a_relative_level_is_in_units_of_the_features() -> None:
    net, (x, y) = smooth_net(), examples(6)
    found = expansion(net, x, y, site="input", noise=Noise(0.4, relative=True), exact=True, draws=2).terms
    assert found.add == pytest.approx(0.4 * float(x.std(correction=0)))


def test_channels_share_one_noise_value() -> None:
    """Of a [n, C, H, W] feature, one value a channel: gradients are summed before they are squared."""
    net, (x, y) = build(ConvNet).eval(), batch(3, 3, 4, 4)
    places = site_map(net, x, site="first")
    settings = {"alpha": 1.0, "beta": 1.0}
    found = gradient_terms(places, y, noise=Noise(0.4, granularity="channel"), **settings)
    jacobian, p = places.jacobian().sum((3, 4)), places.outputs.softmax(1)
    mean = (p[:, :, None] * jacobian).sum(1, keepdim=True)
    expected = (p[:, :, None] * (jacobian - mean).square()).sum((1, 2)).mean() / 2
    assert found.r2_add == pytest.approx(float(expected), rel=1e-4)
    assert gradient_terms(places, y, noise=Noise(0.4), **settings).r2_add < 0.5 * found.r2_add


@pytest.mark.parametrize("site", ["input", "1"])
@pytest.mark.parametrize("outputs", [1, 3])
def test_the_remainder_is_of_third_order(site: str, outputs: int) -> None:
    net, (x, y) = smooth_net(outputs), examples(8, classes=max(outputs, 2))
    settings = {"noise": Noise(0.4, 0.2), "alpha": ALPHA, "beta": BETA, "draws": 12}
    places = site_map(net, x, site=site)
    found = [sampled_loss(places, y, eps=eps, **settings) for eps in EPS]
    rests, errors = [math.log2(abs(one.remainder.value)) for one in found], [one.loss.error for one in found]
    assert expansion(net, x, y, site=site, eps=EPS[2], probes=2, **settings).remainder == found[2].remainder
    powers = torch.arange(1, 9, dtype=torch.float64)
    centred = powers - powers.mean()
    slope = -float((centred * torch.tensor(rests, dtype=torch.float64)).sum() / centred.square().sum())
    assert slope > 2.5
    assert errors[0] / errors[-1] < 2.0 ** (2.5 * 7)  # the loss alone does not shrink so fast


def test_without_the_second_derivative_of_the_features_the_order_is_lost() -> None:
    """The proof takes the derivative of the perturbed feature in eps as e_NFM; it is e_0 + 2 eps e_1."""
    from nfm.theory.losses import form_of, targets_of
    from nfm.theory.monte_carlo import own_label_draws

    net, (x, y) = smooth_net(), examples(8)
    places = site_map(net, x, site="1")
    z, form = places.outputs, form_of(places.outputs)
    targets = targets_of(y, z)
    slope, rests = form.slope(z, targets), []
    (shift,) = own_label_draws(places.features, noise=Noise(0.4, 0.4), alpha=1.0, beta=1.0, draws=1, seed=0)
    along = places.push(shift.first)
    twice = form.bend(z, along[:, :, None]).squeeze(1) + places.curvature(slope, shift.first)
    for eps in (2.0**-7, 2.0**-8):
        loss = form.value(places(places.features + eps * shift.total(eps)), targets)
        rests.append(
            (loss - form.value(z, targets) - eps * (slope * along).sum(1) - eps**2 / 2 * twice).mean()
        )
    assert math.log2(float(rests[0] / rests[1])) == pytest.approx(2, abs=0.1)


def test_the_sampled_loss_fits_the_terms() -> None:
    """The loss minus its own remainder estimates the approximation without bias."""
    net, (x, y) = smooth_net(), examples(6)
    found = expansion(
        net, x.repeat(50, 1), y.repeat(50), site="1", noise=Noise.authors(0.8, 0.8), alpha=1.0, eps=0.5, draws=64,
        exact=True,
    )  # fmt: skip
    gap = found.loss.value - found.remainder.value - found.approximation.value
    assert abs(gap) < 4 * found.loss.error
    assert abs(found.loss.value - found.terms.first.standard) > 6 * found.loss.error


def test_hutchinson_agrees_with_the_exact_sum() -> None:
    net, (x, y) = smooth_net(), examples(6)
    places = site_map(net, x, site="1")
    settings = {"noise": Noise(0.4, 0.2), "alpha": 1.0, "beta": 1.0}
    sampled, exact = (
        curvature_terms(places, y, probes=64, **settings),
        curvature_terms(places, y, exact=True, **settings),
    )
    for name in ("r3", "r3_add", "r3_mult"):
        one, other = getattr(sampled, name), getattr(exact, name)
        assert other.error == 0 < one.error
        assert abs(one.value - other.value) < 4 * one.error
    assert abs(sampled.r3.value + exact.r3.value) > 4 * sampled.r3.error  # the sign counts


def test_a_piecewise_linear_network_has_no_curvature() -> None:
    """R3 is 0 almost everywhere, reported and not refused; with cross-entropy R2 is not."""
    net, (x, y) = build(ConvNet).eval(), batch(4, 3, 6, 6)
    found = expansion(net, x, y, site="first", noise=Noise(0.4, 0.2), draws=2, probes=2)
    assert (found.terms.second.r3.value, found.terms.r3_total.value, found.terms.r3_total.error) == (0, 0, 0)
    assert found.terms.r2_total > 0
    smooth = expansion(smooth_net(), *examples(), site="1", noise=Noise(0.4, 0.2), draws=2, probes=2)
    assert smooth.terms.r3_total.value != 0


def test_two_outputs_are_one_logistic_output() -> None:
    """Cross-entropy of (z0, z1) is the logistic loss of z1 - z0: every term must agree."""
    net, (x, y) = smooth_net(2), examples(6, classes=2)
    last = net[-1]
    single = nn.Linear(6, 1).double()
    with torch.no_grad():
        single.weight.copy_(last.weight[1:] - last.weight[:1])
        single.bias.copy_(last.bias[1:] - last.bias[:1])
    merged = nn.Sequential(*net[:-1], single)
    settings = {"site": "1", "noise": Noise(0.4, 0.2), "exact": True, "draws": 4, "eps": 0.3}
    one, two = expansion(merged, x, y, **settings).rows(), expansion(net, x, y, **settings).rows()
    for name in one:
        if name != "R1_printed":  # h'(f - y) means different things for one output and two
            assert one[name].value == pytest.approx(two[name].value, rel=1e-7, abs=1e-12)
    assert one["R2"].value != pytest.approx(expansion(merged, x, 1 - y, **settings).rows()["R1"].value)


def test_nothing_is_disturbed(untouched_generators: None) -> None:
    net, (x, y) = build(ConvNet), batch(4, 3, 6, 6)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    nfm.theory.expansion(net, x, y, site="input", noise=Noise(0.4, 0.2), draws=2, probes=2)
    assert net.training
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert all(parameter.grad is None for parameter in net.parameters())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"eps": -1.0}, "eps: expected a finite number"),
        ({"eps": math.nan}, "eps: expected a finite number"),
        ({"probes": 1}, "probes: expected 2 or more"),
        ({"draws": 1}, "draws: expected 2 or more"),
        ({"alpha": -1.0}, "alpha: expected"),
    ],
)
def test_bad_numbers(options: dict[str, float], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        expansion(smooth_net(), *examples(), site="1", noise=Noise(0.1), **options)
