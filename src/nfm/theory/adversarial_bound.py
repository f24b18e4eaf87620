"""Theorem 2: the NFM loss bounds an l2-adversarial loss with a regulariser, to second order in eps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nfm.core.noise import Noise
from nfm.errors import UsageError
from nfm.theory.assumptions import Assumption, assumptions_of
from nfm.theory.binary import BinaryMap, binary_map, positive
from nfm.theory.mixture import WeightMixture
from nfm.theory.moments import FeatureMoments, NoiseMoments


@dataclass(frozen=True, eq=False)
class SiteQuantities:
    """What Theorem 2 needs of one site: per example [n], but for c_x."""

    gradient: Tensor  # ||grad_k f||
    cosine: Tensor  # r_i = |cos(grad_k f, g_k)|
    scale: float  # c_x sqrt(d_k): the smallest norm of the features
    centred: Tensor  # (eps_reg)^2 / eps^2 as the theorem has it
    crossed: Tensor  # what the remark takes off for features that are not centred
    first: Tensor  # (S(f) - y) grad_k f . mean: the first-order term that the remark leaves out


@dataclass(frozen=True, eq=False)
class AdversarialBound:
    """Theorem 2 at one eps: the adversarial loss, and the right side (that plus the regulariser) in three forms.

    `centred` is the theorem's, for features of mean 0. `printed` is the remark's for any others: it fails.
    `corrected` adds the first-order term that the remark leaves out.
    """

    eps: float
    radius: Tensor  # eps_mix of each example [n], in the units of the site "input"
    cosine: dict[str, Tensor]
    scale: dict[str, float]
    adversarial: float
    exact: float  # share of examples whose worst case is exact; the others' is by PGD, from below
    centred: float
    printed: float
    corrected: float
    assumptions: tuple[Assumption, ...]
    n: int

    def __str__(self) -> str:
        lines = [
            f"eps {self.eps:g}, n = {self.n}: radius {float(self.radius.min()):.3g} to {float(self.radius.max()):.3g}",
            f"  adversarial loss {self.adversarial:.6g} (exact for {self.exact:.0%})",
            f"  right side: centred {self.centred:.6g}, printed {self.printed:.6g}, corrected {self.corrected:.6g}",
        ]
        return "\n".join([*lines, *(f"  {assumption}" for assumption in self.assumptions)])


def adversarial_bound(
    model: nn.Module, x: Tensor, y: Tensor, *, sites: Sequence[str], noise: Noise, alpha: float = 1.0,
    beta: float | None = None, eps: float = 0.1, steps: int = 20, seed: int = 0,
) -> AdversarialBound:  # fmt: skip
    """Return both parts of the right side of Theorem 2 for a binary classifier, and which assumptions hold.

    One output, or two whose difference is the paper's f. Several classes are not the theorem's: f is then the
    true class over the best other one, and the assumption "binary" is reported as violated.
    """
    if not sites:
        raise UsageError("sites: expected at least one, got none")
    if not eps >= 0:
        raise UsageError(f"eps: expected 0 or greater, got {eps!r}")
    weight = WeightMixture(alpha, alpha if beta is None else beta)
    maps = {site: binary_map(model, x, y, site=site) for site in sites}
    start = binary_map(model, x, y, site="input")
    found = {site: _quantities(place, noise, weight) for site, place in maps.items()}
    radius = eps * _radius(start, list(found.values()), weight)
    adversarial, exact = worst_loss(start, radius, steps=steps, seed=seed)
    bend = torch.sigmoid(start.f) * torch.sigmoid(-start.f)
    regularised = eps**2 * (bend * _over_sites([site.centred for site in found.values()])).mean() / 2
    taken_off = eps**2 * (bend * _over_sites([site.crossed for site in found.values()])).mean() / 2
    first = eps * weight.mean * _over_sites([site.first for site in found.values()]).mean()
    centred = adversarial + float(regularised)
    return AdversarialBound(
        eps=eps, radius=radius, cosine={name: site.cosine for name, site in found.items()},
        scale={name: site.scale for name, site in found.items()}, adversarial=adversarial, exact=exact,
        centred=centred, printed=centred - float(taken_off), corrected=centred - float(taken_off) + float(first),
        assumptions=assumptions_of(start, maps, seed=seed), n=len(x),
    )  # fmt: skip


def mixing_radius(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    *,
    sites: Sequence[str],
    alpha: float = 1.0,
    beta: float | None = None,
) -> Tensor:
    """Return eps_mix [n] at eps = 1 alone."""
    weight = WeightMixture(alpha, alpha if beta is None else beta)
    start = binary_map(model, x, y, site="input")
    found = [_quantities(binary_map(model, x, y, site=site), Noise(), weight) for site in sites]
    return _radius(start, found, weight)


def _radius(start: BinaryMap, found: list[SiteQuantities], weight: WeightMixture) -> Tensor:
    size = positive(start.gradient.flatten(1).norm(dim=1))
    return weight.mean * _over_sites([site.cosine * site.scale * site.gradient / size for site in found])


def _over_sites(values: list[Tensor]) -> Tensor:
    """Return the expectation over k, which the theorem prints for eps_mix and forgets for eps_reg."""
    return torch.stack(values).mean(0)


def _quantities(place: BinaryMap, noise: Noise, weight: WeightMixture) -> SiteQuantities:
    z, gradient = place.features.flatten(1), place.gradient.flatten(1)
    law, moments = NoiseMoments.of(noise, place.features), FeatureMoments.of(place.features)
    size, own, mean = gradient.norm(dim=1), (gradient * z).sum(1), gradient @ moments.mean
    square = (gradient @ moments.factor.T).square().sum(1) + mean.square()  # E_r[(grad . g_r)^2]
    shared = place.gradient[:, None]
    add = law.gather(shared).square().sum((1, 2)) * law.add_square
    mult = law.gather(shared * place.features[:, None]).square().sum((1, 2)) * law.mult_square
    norms = z.norm(dim=1)
    return SiteQuantities(
        gradient=size, cosine=own.abs() / positive(size * norms), scale=float(norms.min()),
        centred=weight.mean**2 * square + law.add**2 * add + law.mult**2 * mult,
        crossed=weight.mean**2 * 2 * mean * own,
        first=(torch.sigmoid(place.f) - place.y) * mean,
    )  # fmt: skip


def worst_loss(start: BinaryMap, radius: Tensor, *, steps: int, seed: int) -> tuple[float, float]:
    """Return the mean loss at the worst point within `radius` [n] of each input, and the share that is exact.

    Where f is linear in the ball the worst point is along its gradient. That is looked at along the gradient
    and along random directions; where it is not so, projected gradient ascent is taken instead, from below.
    """
    linear = start.f + (1 - 2 * start.y) * radius * start.gradient.flatten(1).norm(dim=1)
    exact = start.is_linear_within(radius, seed=seed)
    found = torch.where(exact, linear, start.f)
    if not bool(exact.all()):
        found = torch.where(exact, linear, start.ascend(radius, steps=steps))
    losses = F.softplus(found) - start.y * found
    return float(losses.mean()), float(exact.double().mean())
