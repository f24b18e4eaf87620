"""Truncation decided exactly: float32 for nearly all pixels, the published arithmetic for the rest.

The published files were truncated to 8 bits. Where a result is near a whole number, as in every flat area,
the rounding errors of the published float64 (or float32) sums decide about a level. So each value is
first found to within a margin; only those so near a whole number that they are in doubt are summed again,
in the published order of operations.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from nfm.evaluate.corruptions.planes import to_uint8


def settle(levels: Tensor, exact: Callable[[Tensor], Tensor], *, margin: float) -> Tensor:
    """Return float32 `levels` (from 0 to 255, to within `margin`) truncated to uint8.

    exact: is given places (int64 (M,)) in the flattened levels, and returns what belongs there, uint8 (M,).
    """
    upper = to_uint8(levels + margin)
    lower = to_uint8((levels - margin).clamp_(min=0))
    doubtful = find(upper != lower)
    if len(doubtful):
        upper.view(-1)[doubtful] = exact(doubtful)
    return upper


def find(mask: Tensor) -> Tensor:
    """Return the places of the few true values of a flattened mask: int64 (M,). Looks at eight at a time."""
    flat = mask.flatten()
    whole = len(flat) // 8 * 8
    eights = flat[:whole].view(torch.int64).nonzero()
    places = (eights * 8 + torch.arange(8, device=mask.device)).flatten()
    rest = torch.arange(whole, len(flat), device=mask.device)
    places = torch.cat([places, rest])
    return places[flat[places]]


def unravel(places: Tensor, shape: torch.Size) -> list[Tensor]:
    """Return the index along each axis of `places` in a flattened tensor of `shape`."""
    indices = []
    for size in reversed(shape):
        indices.append(places % size)
        places = places // size
    return indices[::-1]
