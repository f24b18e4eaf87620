"""Refuse a network whose derivatives would mean nothing, before anything is computed from them."""

from __future__ import annotations

import torch
from torch import Tensor

from nfm.errors import NumericalError, SiteError
from nfm.randomness import torch_generator
from nfm.theory.derivatives import SiteMap

FEW = 8  # examples that are looked at
STEP = 1e-3  # of the features' root mean square
TOLERANCE = 0.25  # of the derivative: kinks within a step cost less, a wrong derivative more


def check_sound(site_map: SiteMap) -> SiteMap:
    """Return the map if its outputs are finite, depend on the site example by example, and autograd says so."""
    name = site_map.site.name
    if not torch.isfinite(site_map.outputs).all():
        raise NumericalError(f"expected finite outputs behind site {name!r}, got NaN or infinity")
    few = site_map.part(slice(0, FEW))
    _check_apart(few)
    change, derivative = _along_a_direction(few)
    rounding = 64 * torch.finfo(few.outputs.dtype).eps * float(few.outputs.norm())
    if not torch.isfinite(derivative).all():
        raise NumericalError(
            f"expected finite derivatives by the features at site {name!r}, got NaN or infinity"
        )
    if float(change.norm()) <= rounding and not derivative.any():
        raise SiteError(
            f"site {name!r} does not reach the outputs: they stay the same when its features change; choose a "
            "site on the way from the input to the outputs"
        )
    if float((change - derivative).norm()) > TOLERANCE * float(derivative.norm()) + rounding:
        raise SiteError(
            f"autograd is broken behind site {name!r}: features moved by {STEP:g} of their size change the outputs "
            f"by {float(change.norm()):.3g}, the derivative says {float(derivative.norm()):.3g} (they differ by "
            f"{float((change - derivative).norm()):.3g}); look for detach(), no_grad, rounding or a "
            "backward pass of your own"
        )
    return site_map


def _check_apart(few: SiteMap) -> None:
    """Refuse outputs of one example that change with the others, as batch norm without running statistics does."""
    alone = few.part(slice(0, 1))
    with torch.no_grad():
        outputs = alone(alone.features)
    gap = float((outputs - alone.outputs).abs().max())
    if len(few) > 1 and gap > 1e-3 * float(few.outputs.abs().max()):
        raise SiteError(
            f"the outputs of one example depend on the others in its batch (they move by {gap:.3g}): no derivative "
            "by its own features alone; batch norm needs running statistics in evaluation mode"
        )


def _along_a_direction(few: SiteMap) -> tuple[Tensor, Tensor]:
    """Return the change of the outputs over a small step, and what the derivative says it is."""
    h = few.features
    size = h.square().mean().sqrt().clamp_min(torch.finfo(h.dtype).tiny)
    direction = torch.randn(h.shape, generator=torch_generator(0), dtype=torch.float64).to(h) * size
    with torch.no_grad():
        change = (few(h + STEP * direction) - few(h - STEP * direction)) / 2
    return change, STEP * few.push(direction)
