"""Mix and noise of a small feature without a compiler: all of it at once, by torch's own threads.

What takes the time is drawing, on one thread; threads of our own would get in the way of torch's, which wait for its
next operation. The sums are those of ``mixing`` and ``noise``, in place: both give the same bits.
"""

from __future__ import annotations

import torch
from torch import Tensor

from nfm.core.mixing import Pairing, against
from nfm.core.pages import fresh_like


def mix_noise(x: Tensor, pairing: Pairing, add: Tensor | None, factor: Tensor | None) -> Tensor:
    """Return `x` mixed, times `factor`, plus `add`; None stands for no noise."""
    out = fresh_like(x)
    if pairing.unmixed:
        out.copy_(x)
    else:
        own, other = (against(part, x) for part in pairing.parts(x.dtype))
        torch.mul(x, own, out=out).add_(x.index_select(0, pairing.partner).mul_(other))
    if factor is not None:
        out.mul_(factor)
    return out if add is None else out.add_(add)


def mix_noise_transposed(g: Tensor, pairing: Pairing, factor: Tensor | None) -> Tensor:
    """Return the gradient of x for the gradient `g` of the output of `mix_noise`."""
    out = fresh_like(g)
    h = g if factor is None else g * factor
    if pairing.unmixed:
        return out.copy_(h)
    own, other = (against(part, h) for part in pairing.parts(h.dtype))
    return torch.mul(h, own, out=out).add_((h * other).index_select(0, pairing.inverse))
