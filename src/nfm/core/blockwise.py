"""Mix and noise without a compiler, fast: threads over blocks that stay in cache, little made besides the output.

A thread takes a block, draws its noise, mixes it with those of the partners, and writes the result; the values do not
depend on the number of threads. The sums are those of ``mixing`` and ``noise``, which are the oracle: both give the
same bits. They are done by numpy on the memory of the tensors: it makes views sooner, and never starts threads of its
own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nfm.core.blocks import BLOCK, LONG, Block, Index, Values, blocks_of, in_threads, is_small
from nfm.core.cycles import mix_along_cycles
from nfm.core.factors import Factors
from nfm.core.mixing import Pairing
from nfm.core.pages import fresh_like

HALF = (torch.float16, torch.bfloat16)

# The additive noise and the multiplicative factor of a block, None where there is none; the noise may be drawn into the
# memory that is given, that of the block's output
Noises = Callable[[int, Block, Values], tuple[Values | None, Values | None]]


def mix_noise(x: Tensor, pairing: Pairing, noises: Noises) -> Tensor:
    """Return `x` mixed and perturbed."""
    if x.dtype in HALF:  # added up in float32
        return mix_noise(x.float(), pairing, noises).to(x.dtype)
    out = fresh_like(x)
    target, mix = out.numpy(), _mixer(x.detach().numpy(), None, pairing, x.dtype, transposed=False)

    def work(number: int, block: Block) -> None:
        h = target[block.at]
        add, factor = noises(number, block, h)
        mixed = h if add is None else np.empty(block.shape, h.dtype)
        mix(mixed, block)
        if factor is not None:
            np.multiply(mixed, factor, mixed)
        if add is not None:
            np.add(mixed, add, h)

    in_threads(work, _blocks_to_mix(x))
    return out


def mix_noise_transposed(g: Tensor, pairing: Pairing, factors: Factors | None) -> Tensor:
    """Return the gradient of x for the gradient `g` of the output."""
    if g.dtype in HALF:
        return mix_noise_transposed(g.float(), pairing, factors).to(g.dtype)
    out = fresh_like(g)
    target, source = out.numpy(), g.detach().numpy()
    if math.prod(g.shape[1:]) >= LONG and not pairing.unmixed:
        mix_along_cycles(target, source, factors, pairing, g.dtype)
    else:
        mix = _mixer(source, factors, pairing, g.dtype, transposed=True)
        in_threads(lambda _, block: mix(target[block.at], block), _blocks_to_mix(g))
    return out


def _blocks_to_mix(x: Tensor) -> tuple[Block, ...]:
    return blocks_of(tuple(x.shape), limit=BLOCK if is_small(x.shape) else 0)


def _mixer(
    source: Values, factors: Factors | None, pairing: Pairing, dtype: torch.dtype, *, transposed: bool
) -> Callable[[Values, Block], None]:
    """Return what writes a block of `mix` of h = source * factors, or of its transposed.

    Either is own part * h + (other part * h)[order].
    """

    def h_at(index: Index, out: Values) -> Values:
        return source[index] if factors is None else np.multiply(source[index], factors.at(index), out)

    if pairing.unmixed:
        return lambda out, block: np.copyto(out, h_at(block.at, out))
    order = (pairing.inverse if transposed else pairing.partner).numpy()
    own, other = (part.numpy() for part in pairing.parts(dtype))  # one, or one an example
    if transposed and pairing.per_sample:
        other = other[order]

    def of(part: Values, rows: Any, out: Values) -> Values:
        if not pairing.per_sample:
            return part
        weights: Values = part[rows]
        return weights.reshape(-1, *[1] * (out.ndim - 1)) if weights.ndim else weights

    def add(out: Values, rows: Any, inner: Sequence[Any], theirs: Values) -> None:
        np.multiply(h_at((order[rows], *inner), theirs), of(other, rows, out), theirs)
        np.add(out, theirs, out)

    def mix(out: Values, block: Block) -> None:
        rows, *inner = block.at
        np.multiply(h_at(block.at, out), of(own, rows, out), out)
        if not isinstance(rows, slice) or out[0].size < LONG:
            add(out, rows, inner, np.empty_like(out))
            return
        theirs = np.empty_like(out[0])
        for place, row in enumerate(range(rows.start, rows.stop)):
            add(out[place], row, inner, theirs)

    return mix
