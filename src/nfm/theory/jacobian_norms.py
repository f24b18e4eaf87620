"""Spectral norms of the Jacobians before and behind a site, example by example."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from nfm.method.dry_run import watching
from nfm.method.sites import resolve
from nfm.randomness import torch_generator
from nfm.theory.derivatives import SiteMap, differentiating, input_map
from nfm.theory.plain_passes import plain_passes

ITERATIONS = 20  # of the power method


def output_norms(places: SiteMap) -> Tensor:
    """Return ||grad_k f||_2 [n], the greatest singular value of the Jacobian [K, d_k] of each example: exact."""
    found = []
    for part in places.chunks(places.batch):
        jacobian = part.jacobian().flatten(2).double()
        found.append(torch.linalg.eigvalsh(jacobian @ jacobian.mT)[:, -1].clamp_min(0).sqrt())
    return torch.cat(found)


def feature_norms(model: nn.Module, x: Tensor, *, site: str, iterations: int = ITERATIONS) -> Tensor:
    """Return ||grad g_k||_2 [n] from the input to the features at `site`, by the power method: from below."""
    whole = input_map(model, x)
    found = [_power(part, site, iterations) for part in whole.chunks(max(1, whole.batch))]
    return torch.cat(found)


def _power(part: SiteMap, site: str, iterations: int) -> Tensor:
    (place,) = resolve(part.model, (site,)).values()
    x: Tensor = part.args[0]

    def features(value: Tensor) -> Tensor:
        seen: list[Tensor] = []

        def keep(h: Tensor) -> Tensor:
            seen.append(h)
            return h

        with plain_passes(part.model), watching(part.model, place, keep):
            torch.func.functional_call(part.model, part.weights, (value.clone(),))
        return seen[0].clone()

    direction = _unit(torch.randn(x.shape, generator=torch_generator(0), dtype=torch.float64).to(x))
    with differentiating(site):
        pull = torch.func.vjp(features, x)[1]
        for _ in range(iterations):
            pushed = torch.func.jvp(features, (x,), (direction,))[1]
            direction = _unit(pull(pushed)[0].detach())
        pushed = torch.func.jvp(features, (x,), (direction,))[1]
    return pushed.detach().flatten(1).norm(dim=1).double()


def _unit(value: Tensor) -> Tensor:
    size = value.flatten(1).norm(dim=1).clamp_min(torch.finfo(value.dtype).tiny)
    return value / size.view(-1, *[1] * (value.ndim - 1))
