"""How near an error is: a point that is misclassified, found by an attack, bounds the margin from above."""

from __future__ import annotations

import torch
from torch import Tensor

from nfm.theory.derivatives import SiteMap
from nfm.theory.losses import targets_of

OVERSHOOT = 1.02  # beyond the boundary of the linearised network
HALVINGS = 30


def nearest_error(network: SiteMap, y: Tensor, *, steps: int = 50) -> Tensor:
    """Return the l2 distance [n] to the nearest misclassified point that was found, inf where none was.

    Newton steps down the gap between the true class and the best other one (Moosavi-Dezfooli et al. 2016),
    then bisection towards the example: every distance returned is that of a point seen to be misclassified.
    """
    x, sign = network.features, _OwnClass(network, y)
    point, found = x.clone(), torch.zeros(len(x), dtype=torch.bool, device=x.device)
    for _ in range(steps):
        gap, gradient = sign.gap_and_gradient(point)
        found |= gap < 0
        if bool(found.all()):
            break
        size = gradient.flatten(1).square().sum(1).clamp_min(torch.finfo(x.dtype).tiny)
        step = torch.where(found, 0.0, OVERSHOOT * gap / size + torch.finfo(x.dtype).eps)
        point = point - gradient * step.view(-1, *[1] * (x.ndim - 1))
    low, high = torch.zeros(len(x)).to(x), torch.ones(len(x)).to(x)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        wrong = sign.gap(torch.lerp(x, point, middle.view(-1, *[1] * (x.ndim - 1)))) < 0
        low, high = torch.where(wrong, low, middle), torch.where(wrong, middle, high)
    distance = high.double() * (point - x).flatten(1).double().norm(dim=1)
    return torch.where(found, distance, torch.inf)


class _OwnClass:
    """The gap between the output of the true class and the best other one, and its gradient."""

    def __init__(self, network: SiteMap, y: Tensor) -> None:
        self.network = network
        self.targets = targets_of(y.to(network.outputs.device), network.outputs)

    def gap(self, point: Tensor) -> Tensor:
        """Return the gap [n], negative where misclassified."""
        most = self.network.batch
        parts = zip(self.network.chunks(most), point.split(most), self.targets.split(most), strict=True)
        return torch.cat([_gap(part(h).detach(), target) for part, h, target in parts])

    def gap_and_gradient(self, point: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gap [n] and its gradient [n, ...]."""
        gaps, gradients, most = [], [], self.network.batch
        parts = zip(self.network.chunks(most), point.split(most), self.targets.split(most), strict=True)
        for part, h, target in parts:
            h = h.detach().requires_grad_()
            gap = _gap(part(h), target)
            gradients.append(torch.autograd.grad(gap.sum(), h)[0])
            gaps.append(gap.detach())
        return torch.cat(gaps), torch.cat(gradients)


def _gap(outputs: Tensor, target: Tensor) -> Tensor:
    if outputs.shape[1] == 1:
        return ((2 * target - 1) * outputs).squeeze(1)
    return (target * outputs).sum(1) - outputs.masked_fill(target.bool(), -torch.inf).amax(1)
