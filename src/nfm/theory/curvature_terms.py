"""R3, R3_add and R3_mult of Theorem 1: second derivatives, by Hessian-vector products along random probes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from nfm.core.noise import Noise
from nfm.errors import UsageError
from nfm.randomness import fold, torch_generator
from nfm.theory.derivatives import SiteMap
from nfm.theory.losses import form_of, targets_of
from nfm.theory.mixture import WeightMixture
from nfm.theory.moments import Estimate, FeatureMoments, NoiseMoments

Lift = Callable[
    [Tensor], Tensor
]  # values [n, ...] that are independent -> directions [n, ...] in the features


@dataclass(frozen=True)
class CurvatureTerms:
    """The regularisers with second derivatives; for a piecewise linear network all are 0 almost everywhere.

    The levels are not in `r3_add` and `r3_mult`.
    """

    r3: Estimate
    r3_add: Estimate
    r3_mult: Estimate
    n: int


def curvature_terms(
    site_map: SiteMap, y: Tensor, *, noise: Noise, alpha: float, beta: float, probes: int = 16,
    exact: bool = False, seed: int = 0,
) -> CurvatureTerms:  # fmt: skip
    """Return the terms by `probes` Hutchinson probes an example, or `exact`: one probe a feature (small ones)."""
    if probes < 2 and not exact:
        raise UsageError(f"probes: expected 2 or more (their spread is the standard error), got {probes}")
    z = site_map.features
    features, law = FeatureMoments.of(z), NoiseMoments.of(noise, z)
    outputs = site_map.outputs
    slopes = form_of(outputs).slope(outputs, targets_of(y.to(outputs.device), outputs))
    values = law.shape(tuple(z.shape))
    lifts: dict[str, tuple[tuple[int, ...], Lift]] = {
        "spread": ((len(z), len(features.factor)), lambda v: (v @ features.factor).view_as(z)),
        "add": (values, lambda v: v.expand_as(z)),
        "mult": (values, lambda v: v * z),
    }
    along = {}
    for name, (shape, lift) in lifts.items():
        source = _axes(shape, z) if exact else _signs(shape, z, probes, fold(seed, "hutchinson", name))
        sums = torch.tensor([mean_curvature(site_map, slopes, lift(v)) for v in source], dtype=torch.float64)
        along[name] = (
            Estimate(float(sums.sum()))
            if exact
            else Estimate(float(sums.mean()), float(sums.std()) / math.sqrt(probes))
        )
    away = mean_curvature(site_map, slopes, features.mean.view_as(z[0]) - z)
    mixing = Estimate(along["spread"].value + away, along["spread"].error)
    return CurvatureTerms(
        r3=mixing.times(WeightMixture(alpha, beta).square / 2), r3_add=along["add"].times(law.add_square / 2),
        r3_mult=along["mult"].times(law.mult_square / 2), n=len(z),
    )  # fmt: skip


def mean_curvature(site_map: SiteMap, slopes: Tensor, directions: Tensor) -> float:
    """Return the mean over examples of sum_c slope_c * v^T (Hessian of f_c) v, v = directions [n, ...]."""
    most = site_map.batch
    parts = zip(site_map.chunks(most), slopes.split(most), directions.split(most), strict=True)
    sums = [part.curvature(slope, v.contiguous()).double().sum() for part, slope, v in parts]
    return float(torch.stack(sums).sum()) / len(site_map)


def _axes(shape: tuple[int, ...], like: Tensor) -> Iterator[Tensor]:
    """Yield each unit vector of the values of one example, the same for all examples."""
    for axis in range(math.prod(shape[1:])):
        values = torch.zeros(shape[0], math.prod(shape[1:])).to(like)
        values[:, axis] = 1
        yield values.view(shape)


def _signs(shape: tuple[int, ...], like: Tensor, probes: int, key: int) -> Iterator[Tensor]:
    for probe in range(probes):
        yield (2 * torch.randint(2, shape, generator=torch_generator(fold(key, probe))) - 1).to(like)
