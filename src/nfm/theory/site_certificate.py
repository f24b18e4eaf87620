"""The certificate of SM E for a trained network, at its input or at any site inside it.

It is about the network with noise at the site: of each example it tells the likeliest class under that noise, and how
far the feature may be moved before another class can be the likeliest. In pixels this needs a Lipschitz
constant of the part before the site, which must be a rigorous one for the certificate to be.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from nfm.errors import SiteError, UsageError
from nfm.method.sites import INPUT, resolve
from nfm.randomness import check_seed, fold
from nfm.results import Row
from nfm.theory.derivatives import SiteMap, site_map
from nfm.theory.probabilistic import (
    BLOCK,
    Lead,
    certified_shift,
    find_lead,
    length_ratio,
    sample_classes,
)
from nfm.theory.total_variation import SiteNoise
from nfm.theory.total_variation_ball import total_variation_within


@dataclass(frozen=True)
class SiteCertificate:
    """What holds, with confidence 1 - alpha, for one example under noise at one site."""

    site: str
    lead: Lead
    shift: float  # l2, at the site: no shorter shift of the feature changes the class
    radius: float | None  # the same in the input, in the p-norm; None where no Lipschitz constant was given
    epsilon: float | None  # eps_k: total variation within the radius `asked`, where one was

    @property
    def certified(self) -> bool:
        """Whether any shift is certified."""
        return self.shift > 0

    def row(self) -> Row:
        """Return the certificate as a row."""
        return {
            "kind": "site_certificate", "site": self.site, "predicted": self.lead.predicted,
            "first": self.lead.first, "second": self.lead.second, "shift": self.shift, "radius": self.radius,
            "epsilon": self.epsilon, "certified": self.certified,
        }  # fmt: skip


def certify_site(
    model: nn.Module,
    x: Tensor,
    *,
    site: str,
    noise: SiteNoise,
    n: int = 1000,
    n0: int = 100,
    alpha: float = 0.001,
    lipschitz: float | None = None,
    p: float = 2.0,
    asked: float | None = None,
    ids: Sequence[int] | None = None,
    seed: int = 0,
) -> list[SiteCertificate]:
    """Return one certificate an example of `x` (B, ...), for `model` with `noise` at `site`.

    `lipschitz`: l2 constant of the part before the site, known by itself at the input; with it the radius is told
    in the p-norm of the input, and eps_k for the radius `asked`. Draws are keyed by
    `ids`, by default the places in `x`.
    """
    lipschitz = input_lipschitz(model, site) if lipschitz is None else lipschitz
    if lipschitz is not None and not 0 < lipschitz < math.inf:
        raise UsageError(f"lipschitz: expected a constant above 0, got {lipschitz!r}")
    if asked is not None and lipschitz is None:
        raise UsageError(
            "asked: expected lipschitz beside it: a radius of the input says nothing at a site without"
        )
    if ids is not None and len(ids) != len(x):
        raise UsageError(f"ids: expected {len(x)}, one an example, got {len(ids)}")
    per_unit = None if lipschitz is None else lipschitz * length_ratio(p, x[0].numel())
    if per_unit is not None:
        check_carries_all(model, x[:1], site)
    found = []
    for place, name in enumerate(range(len(x)) if ids is None else ids):
        z, rest = _alone(model, x[place : place + 1], site)
        key = fold(check_seed(seed), "site certificate", int(name))
        selection, estimate = (
            sample_classes(rest, z, noise, n=count, key=fold(key, purpose))
            for purpose, count in (("select", n0), ("estimate", n))
        )
        lead = find_lead(selection, estimate, alpha=alpha)
        shift = certified_shift(z, lead, noise)
        found.append(
            SiteCertificate(
                site, lead, shift, None if per_unit is None else shift / per_unit,
                None if asked is None or per_unit is None else _epsilon(z, asked * per_unit, noise),
            )
        )  # fmt: skip
    return found


def input_lipschitz(model: nn.Module, site: str) -> float | None:
    """Return the constant of what stands before the site ``input``, None for any other site.

    It is 1, or 1 / the smallest deviation where the network normalises first (a module with a buffer `std`).
    """
    (place,) = resolve(model, (site,)).values()
    if site != INPUT:
        return None
    std = getattr(model.get_submodule(place.module), "std", None) if place.module else 1.0
    return None if std is None else float(1 / torch.as_tensor(std).min())


def check_carries_all(model: nn.Module, x: Tensor, site: str) -> None:
    """Refuse a site that something of the input passes by: its features do not decide the output alone."""
    whole, other = site_map(model, x, site=site), site_map(model, torch.flip(x, (-1,)) + 0.1, site=site)
    if not torch.allclose(other(whole.features), whole.outputs, rtol=1e-4, atol=1e-5):
        raise SiteError(
            f"something of the input passes by site {site!r}, so a Lipschitz constant of the part before it bounds "
            "no radius; choose a site that carries everything (nfm.find_sites lists them)"
        )


class _Rest:
    """The rest of a network for any number of features of one example."""

    def __init__(self, many: SiteMap) -> None:
        self.many = many

    def __call__(self, h: Tensor) -> Tensor:
        return self.many.part(slice(0, len(h)))(h)


def _alone(model: nn.Module, x: Tensor, site: str) -> tuple[Tensor, _Rest]:
    """Return the feature of one example (1, ...) at `site`, and the rest of the network."""
    many = site_map(model, x.expand(BLOCK, *x.shape[1:]), site=site)
    return many.features[0], _Rest(many)


def _epsilon(z: Tensor, shift: float, noise: SiteNoise) -> float:
    return float(total_variation_within(z[None].cpu(), torch.tensor([shift], dtype=torch.float64), noise))
