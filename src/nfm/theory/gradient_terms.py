"""R1, R2, R2_add and R2_mult of Theorem 1, exact: one backward pass an output, and moments of the features."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from nfm.core.noise import Noise
from nfm.theory.derivatives import SiteMap
from nfm.theory.losses import LossForm, form_of, targets_of
from nfm.theory.mixture import WeightMixture
from nfm.theory.moments import FeatureMoments, NoiseMoments

ROOM = 2**25  # values of a Jacobian held at once: 128 MB in float32
MOST = 64  # examples of one pass: more leave the caches, and cost more each


@dataclass(frozen=True)
class GradientTerms:
    """The standard loss and the regularisers of Theorem 1 that need first derivatives only, of n examples.

    `r1_printed` has h'(f - y) where h'(f) - y is right. The levels are not in `r2_add` and `r2_mult`.
    """

    standard: float
    r1: float
    r1_printed: float
    r2: float
    r2_add: float
    r2_mult: float
    n: int


def gradient_terms(site_map: SiteMap, y: Tensor, *, noise: Noise, alpha: float, beta: float) -> GradientTerms:
    """Return the terms at a site for labels y [n]; work is linear in n beyond n = d_k, and so are the passes."""
    weight = WeightMixture(alpha, beta)
    terms = torch.cat([rows for _, _, rows in gradient_rows(site_map, y, noise=noise)]).mean(0)
    standard, r1, r1_printed, r2, r2_add, r2_mult = terms.tolist()
    return GradientTerms(
        standard=standard, r1=weight.mean * r1, r1_printed=weight.mean * r1_printed,
        r2=weight.square * r2 / 2, r2_add=r2_add / 2, r2_mult=r2_mult / 2, n=len(site_map),
    )  # fmt: skip


def gradient_rows(site_map: SiteMap, y: Tensor, *, noise: Noise) -> Iterator[tuple[SiteMap, Tensor, Tensor]]:
    """Yield, chunk by chunk, the map, its Jacobian [c, K, ...] and what each example adds [c, 6], in float64."""
    features, law = FeatureMoments.of(site_map.features), NoiseMoments.of(noise, site_map.features)
    form, targets = form_of(site_map.outputs), targets_of(y.to(site_map.outputs.device), site_map.outputs)
    outputs = site_map.outputs.shape[1]
    most = max(1, min(MOST, ROOM // (outputs * max(site_map.size, len(features.factor)))))
    for part, target in zip(site_map.chunks(most), targets.split(most), strict=True):
        jacobian = part.jacobian()
        yield part, jacobian, _rows(part, jacobian, target, form, features, law)


def _rows(
    part: SiteMap, jacobian: Tensor, y: Tensor, form: LossForm, features: FeatureMoments, law: NoiseMoments
) -> Tensor:
    z, flat = part.outputs, jacobian.flatten(2)
    away = (features.mean - part.features.flatten(1))[:, :, None]  # E_r[g_r] - g_i, [c, d, 1]
    towards = flat @ away  # [c, K, 1]
    spread = flat @ features.factor.T  # [c, K, m]
    # E_r[(g_r - g_i)(g_r - g_i)^T] is the covariance plus the square of the mean's distance.
    r2 = form.bend(z, spread).sum(1) + form.bend(z, towards).sum(1)
    r2_add = form.bend(z, law.gather(jacobian)).sum(1) * law.add_square
    r2_mult = form.bend(z, law.gather(jacobian * part.features[:, None])).sum(1) * law.mult_square
    r1, printed = (
        (slope * towards.squeeze(2)).sum(1) for slope in (form.slope(z, y), form.printed_slope(z, y))
    )
    return torch.stack([form.value(z, y), r1, printed, r2, r2_add, r2_mult], 1).double()
