"""Class distributions under noise and the certificate of SM E: against closed forms, attacks and the printed form."""

from __future__ import annotations

import math
from statistics import NormalDist

import pytest
import torch
from torch import Tensor, nn

from nets import Mlp, RootResidualNet, build
from nfm.core.binomial import lower_bound, upper_bound
from nfm.errors import NumericalError, ShapeError, SiteError, UsageError
from nfm.models import build as model
from nfm.randomness import torch_generator
from nfm.theory.probabilistic import (
    BLOCK,
    ClassCounts,
    Lead,
    attack_factor,
    attack_factor_printed,
    certified_shift,
    find_lead,
    length_ratio,
    printed_epsilon,
    sample_classes,
)
from nfm.theory.site_certificate import certify_site, input_lipschitz
from nfm.theory.total_variation import SiteNoise
from nfm.theory.total_variation_ball import total_variation_within

NORMAL = NormalDist()
INFINITY = math.inf


class TwoSides(nn.Module):
    """Class 1 on one side of a plane through w, class 0 on the other."""

    def __init__(self, w: Tensor, bias: float = 0.0) -> None:
        super().__init__()
        self.head = nn.Linear(len(w), 2)
        with torch.no_grad():
            self.head.weight.copy_(torch.stack([torch.zeros_like(w), w]))
            self.head.bias.copy_(torch.tensor([0.0, bias]))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x.flatten(1))


def share_of_one(w: Tensor, z: Tensor, noise: SiteNoise) -> float:
    """Return the probability of class 1 in closed form."""
    return NORMAL.cdf(float(w @ z) / math.sqrt(float(w @ noise.covariance(z) @ w)))


@pytest.mark.parametrize(
    "noise", [SiteNoise(0.5), SiteNoise(0.3, 0.4), SiteNoise(0.3, 0.4, "scalar")], ids=str
)
def test_shares_of_a_linear_rest(noise: SiteNoise) -> None:
    generator = torch_generator(0)
    covered = wrongly = 0
    for case in range(20):
        w, z = torch.randn(2, 5, generator=generator)
        counts = sample_classes(TwoSides(w), z, noise, n=2000, key=case)
        low, high = counts.intervals(alpha=0.05)[1]
        covered += low <= share_of_one(w, z, noise) <= high
        wrongly += low <= share_of_one(w, z, SiteNoise(2.0)) <= high
        assert counts.shares()[1] == pytest.approx(share_of_one(w, z, noise), abs=0.06)
    assert covered >= 18  # 95% of 20, and more for the correction by classes
    assert wrongly < 10


def test_the_draws_do_not_depend_on_how_many_follow() -> None:
    rest, z = TwoSides(torch.tensor([1.0, -1.0])), torch.tensor([0.3, 0.1])
    assert BLOCK == 250
    seen: list[Tensor] = []

    def watch(h: Tensor) -> Tensor:
        seen.append(h)
        return rest(h)

    for n in (500, 600):
        sample_classes(watch, z, SiteNoise(1.0), n=n, key=3)
    assert torch.equal(torch.cat(seen[:2]), torch.cat(seen[2:4]))
    assert not torch.equal(seen[0], seen[1])


def test_a_lead() -> None:
    lead = find_lead(ClassCounts((90, 10, 0)), ClassCounts((950, 30, 20)), alpha=0.01)
    assert lead.predicted == 0
    assert lead.first == lower_bound(950, 1000, alpha=0.005)
    assert lead.second == upper_bound(30, 1000, alpha=0.0025)
    assert lead.distance == pytest.approx((lead.first - lead.second) / 2)
    assert find_lead(ClassCounts((1, 9)), ClassCounts((60, 40)), alpha=0.01).distance == 0  # the other leads
    two = find_lead(ClassCounts((9, 1)), ClassCounts((60, 40)), alpha=0.01)
    assert two.second == pytest.approx(1 - two.first)


def test_the_certificate_of_a_linear_rest_never_passes_the_boundary() -> None:
    """Without multiplicative noise G changes exactly at the plane: |w z| / |w| is the largest right answer."""
    generator, noise, certified = torch_generator(1), SiteNoise(0.5), 0
    for case in range(25):
        w, z = torch.randn(2, 6, generator=generator)
        rest = TwoSides(w)
        selection, estimate = (sample_classes(rest, z, noise, n=n, key=7 * case + n) for n in (100, 1000))
        lead = find_lead(selection, estimate, alpha=0.001)
        shift = certified_shift(z, lead, noise)
        true = abs(float(w @ z)) / float(w.norm())
        assert shift <= true
        certified += shift > 0
    assert certified >= 8
    perfect = Lead(1, share_of_one(w, z, noise), 1 - share_of_one(w, z, noise))
    ideal = certified_shift(z, perfect, noise)
    assert 0 < ideal < true
    # The total variation loses against the exact Neyman-Pearson radius, which is the distance itself.
    assert ideal / true == pytest.approx(
        2 * NORMAL.inv_cdf((1 + perfect.distance) / 2) * 0.5 / true, rel=1e-6
    )


@pytest.mark.parametrize("multiplier", ["element", "scalar"])
def test_no_shift_within_the_certificate_changes_the_class(multiplier: str) -> None:
    """With multiplicative noise too: walk to the edge of the ball against w, and look at the closed form."""
    generator, noise, certified = torch_generator(2), SiteNoise(0.4, 0.2, multiplier), 0
    for _ in range(25):
        w, z = torch.randn(2, 4, generator=generator)
        first = max(share_of_one(w, z, noise), 1 - share_of_one(w, z, noise))
        chosen = share_of_one(w, z, noise) > 0.5
        shift = certified_shift(z, Lead(int(chosen), first, 1 - first), noise)
        certified += shift > 0
        allowed = float(total_variation_within(z[None], torch.tensor([shift]), noise))
        directions = torch.cat([torch.randn(10, 4, generator=generator), -w[None], w[None], -z[None]])
        for direction in directions / directions.norm(dim=1, keepdim=True):
            moved = share_of_one(w, z + shift * direction, noise)
            assert (moved > 0.5) == chosen
            assert abs(moved - share_of_one(w, z, noise)) <= allowed + 1e-6
    assert certified == 25
    w = torch.tensor([1.0, 0, 0, 0])
    assert (share_of_one(w, 0.1 * w, noise) > 0.5) != (share_of_one(w, 0.1 * w - 0.2 * w, noise) > 0.5)


def test_length_ratios() -> None:
    """No random vector is longer than the ratio says, and one reaches it."""
    x = torch.randn(500, 9, generator=torch_generator(3), dtype=torch.float64)
    for p in (0.5, 1, 2, 3, 7, INFINITY):
        ratio = x.norm(dim=1) / torch.linalg.vector_norm(x, p, dim=1)
        assert float(ratio.max()) <= length_ratio(p, 9) + 1e-9
    flat = torch.ones(9)
    assert float(flat.norm() / torch.linalg.vector_norm(flat, 4)) == pytest.approx(length_ratio(4, 9))
    with pytest.raises(UsageError, match="expected p above 0"):
        length_ratio(0, 9)


@pytest.mark.parametrize(("radius", "p"), [(0.5, INFINITY), (2.0, INFINITY), (0.9, 4.0), (3.0, 4.0)])
def test_the_printed_attack_factor_is_too_small(radius: float, p: float) -> None:
    """It should bound |tau|_2^2 for every tau with |tau|_p <= radius; the flat vector says it does not."""
    d = 256
    tau = torch.full((d,), 1.0, dtype=torch.float64)
    tau *= radius / torch.linalg.vector_norm(tau, p)
    square = float(tau.norm()) ** 2
    assert attack_factor_printed(radius, p, d) < square
    assert attack_factor(radius, p, d) >= square - 1e-9
    assert attack_factor(0.5, 2, d) == attack_factor_printed(0.5, 2, d) == 0.5
    assert attack_factor(3, 1, d) == attack_factor_printed(3, 1, d) == 9


def test_the_printed_epsilon_certifies_what_is_broken() -> None:
    """Without multiplicative noise it is 0 for every radius, yet a shift by ten deviations changes the class."""
    noise, w, z = SiteNoise(0.5), torch.tensor([1.0, 0.0]), torch.tensor([2.0, 0.0])
    assert printed_epsilon(5.0, 2, 2, noise, jacobian=1, norm=2, spread=0) == 0
    assert share_of_one(w, z, noise) > 0.99 > 0.01 > share_of_one(w, z - 5 * w, noise)
    assert float(total_variation_within(z[None], torch.tensor([5.0]), noise)) > 0.99
    assert printed_epsilon(5.0, 2, 2, SiteNoise(0.5, 0.1), jacobian=1, norm=2, spread=0) > 0


def test_a_network_at_its_input_and_inside() -> None:
    net = build(lambda: Mlp(width=8)).eval()
    with torch.no_grad():
        net.head.weight.mul_(20)
    x = torch.randn(6, 4, generator=torch_generator(5))
    noise = SiteNoise(0.1, 0.05)
    for site in ("input", "first"):
        found = certify_site(
            net, x, site=site, noise=noise, n=500, n0=50, lipschitz=2.0, asked=0.05, p=INFINITY
        )
        assert any(one.certified for one in found)
        for one in found:
            assert one.radius == pytest.approx(one.shift / 2 / math.sqrt(4))
            assert one.row()["site"] == site
            assert one.epsilon is not None
            assert 0 < one.epsilon < 1
            if one.lead.distance > one.epsilon:
                assert one.radius >= 0.05 * (1 - 1e-9)
    alone = certify_site(net, x[3:4], site="first", noise=noise, n=500, n0=50, ids=[3])
    assert alone[0].lead == found[3].lead
    assert alone[0].shift == found[3].shift
    assert (alone[0].radius, alone[0].epsilon) == (None, None)


def test_the_input_knows_its_own_constant() -> None:
    net = build(lambda: Mlp(width=8)).eval()
    x = torch.rand(2, 4, generator=torch_generator(5))
    (one, _) = certify_site(net, x, site="input", noise=SiteNoise(0.1), n=50, n0=10)
    assert one.radius == one.shift
    assert certify_site(net, x, site="first", noise=SiteNoise(0.1), n=50, n0=10)[0].radius is None
    images = torch.rand(2, 1, 8, 8, generator=torch_generator(5))
    inside = model("mlp", num_classes=3, in_channels=1, image_size=8, mean=[0.5], std=[0.25], units=8)
    assert input_lipschitz(inside, "input") == 4.0
    first = certify_site(inside, images, site="input", noise=SiteNoise(0.01), n=200, n0=10)[0]
    assert first.radius == pytest.approx(first.shift / 4)


def test_no_attack_at_the_site_breaks_a_certificate() -> None:
    """Steps along the gradient and at random, as long as the certified shift; sampled with other noise."""
    net = build(lambda: Mlp(width=8)).eval()
    with torch.no_grad():
        net.head.weight.mul_(20)
    x, noise = torch.randn(8, 4, generator=torch_generator(6)), SiteNoise(0.1, 0.05)
    rest = nn.Sequential(net.second, net.head)
    features = net.first(net.stem(x)).detach()
    found = certify_site(net, x, site="first", noise=noise, n=1000, n0=100)
    tried = changed = 0
    for z, one in zip(features, found, strict=True):
        steps = torch.randn(10, 8, generator=torch_generator(8))
        h = z.clone().requires_grad_(True)
        scores = rest(h[None])[0]
        scores[one.lead.predicted].sub(scores.topk(2)[0].sum()).backward()
        steps = torch.cat([steps, -h.grad[None], h.grad[None]])
        for step in steps / steps.norm(dim=1, keepdim=True):
            counts = sample_classes(rest, z + one.shift * step, noise, n=500, key=11)
            tried += one.certified
            changed += one.certified and counts.likeliest != one.lead.predicted
            far = sample_classes(rest, z + 5 * step, noise, n=100, key=11)
            tried += 0 if far.likeliest == one.lead.predicted else 1000  # such an attack could succeed
    assert changed == 0
    assert tried % 1000 > 20
    assert tried > 1000


def test_site_refusals() -> None:
    net = build(RootResidualNet).eval()
    x = torch.randn(2, 4, generator=torch_generator(0))
    with pytest.raises(SiteError, match="passes by site 'first'"):
        certify_site(net, x, site="first", noise=SiteNoise(0.1), n=50, n0=10, lipschitz=1.0)
    assert (
        len(certify_site(net, x, site="first", noise=SiteNoise(0.1), n=50, n0=10)) == 2
    )  # at the site alone
    with pytest.raises(UsageError, match="lipschitz: expected a constant above 0"):
        certify_site(net, x, site="stem", noise=SiteNoise(0.1), lipschitz=0.0)
    with pytest.raises(UsageError, match="asked: expected lipschitz"):
        certify_site(net, x, site="stem", noise=SiteNoise(0.1), asked=0.1)
    with pytest.raises(UsageError, match="ids: expected 2"):
        certify_site(net, x, site="stem", noise=SiteNoise(0.1), ids=[1])
    with pytest.raises(SiteError, match="no site 'stm'"):
        certify_site(net, x, site="stm", noise=SiteNoise(0.1))


def test_bad_scores_are_refused() -> None:
    z, noise = torch.zeros(3), SiteNoise(0.1)
    with pytest.raises(NumericalError, match="not finite"):
        sample_classes(lambda h: h * math.nan, z, noise, n=10, key=0)
    with pytest.raises(ShapeError, match=r"expected scores of shape \(10, classes\)"):
        sample_classes(lambda h: h.sum(1), z, noise, n=10, key=0)
    with pytest.raises(UsageError, match="n: expected a number of draws"):
        sample_classes(lambda h: h, z, noise, n=0, key=0)
