"""Mix and noise without a compiler, fast: threads over blocks that stay in cache, little made besides the output.

A block is a run of elements: a part of one example, or a few whole ones. A thread takes a block, draws its noise, mixes
it with those of the partners, and writes the result; the values do not depend on the number of threads. The
sums are those of ``mixing`` and ``noise``, which are the oracle: both give the same bits. They are done by numpy on the
memory of the tensors: it makes views sooner, and never starts threads of its own.
"""

from __future__ import annotations

import functools
import itertools
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nfm.core.mixing import Pairing
from nfm.core.pages import fresh_like

SMALL = 2**20  # elements of a feature whose noises are drawn as one block
BLOCK, BIG_BLOCK = 2**16, 3 * 2**16  # elements: small ones wait for Python's lock, big ones leave the cache
BLOCKS = 8  # that a feature is cut into, if they are of such a size
BLOCKS_A_THREAD = 4  # fewer are done sooner by one thread
LONG = 2**14  # elements of an example that is mixed by itself: several at once are copied first
HALF = (torch.float16, torch.bfloat16)

Index = tuple[Any, ...]  # whole numbers, a range, or in the first place an array of examples
Item = TypeVar("Item")
Values = NDArray[Any]  # float32, or float64 where the feature is


class Block(NamedTuple):
    """A run of elements: where it is, how many elements lie before it, and its shape."""

    at: Index
    first: int
    shape: tuple[int, ...]


def is_small(shape: Sequence[int]) -> bool:
    """Tell whether noises of `shape` are drawn as one block."""
    return math.prod(shape) <= SMALL


@functools.lru_cache(maxsize=128)
def blocks_of(shape: tuple[int, ...], limit: int = 0) -> tuple[Block, ...]:
    """Cut features of `shape` into blocks of at most `limit` elements (0: by its size), in order.

    Numbers tell where a block is in the leading axes, a range in the next, and it has all of the others.

    >>> [(block.first, block.shape) for block in blocks_of((2, 3, 4), limit=8)]
    [(0, (1, 4)), (4, (2, 4)), (12, (1, 4)), (16, (2, 4))]
    """
    if not limit:
        limit = SMALL if is_small(shape) else min(BIG_BLOCK, max(BLOCK, math.prod(shape) // BLOCKS))
    limit = max(1, limit)
    axis = next(axis for axis in range(len(shape)) if math.prod(shape[axis + 1 :]) <= limit)
    rows, rest = shape[axis], shape[axis + 1 :]
    inner, leading = math.prod(rest), itertools.product(*(range(size) for size in shape[:axis]))
    return tuple(
        Block((*index, slice(start, stop)), (number * rows + start) * inner, (stop - start, *rest))
        for number, index in enumerate(leading)
        for start, stop in _ranges(rows, max(1, limit // max(1, inner)))
    )


def _ranges(rows: int, most: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of nearly equal length, `most` at most."""
    count = -(-rows // most)
    edges = [rows * part // count for part in range(count + 1)] if count else []
    return itertools.pairwise(edges)


def in_threads(work: Callable[[int, Item], object], items: Sequence[Item]) -> None:
    """Let up to `torch.get_num_threads()` threads take numbered items from one pile; they end with the call."""
    pile = iter(enumerate(items))
    errors: list[BaseException] = []

    def take() -> None:
        try:
            with torch.inference_mode():  # a new thread knows nothing of the caller's mode
                for number, item in pile:
                    work(number, item)
        except BaseException as error:
            errors.append(error)

    count = min(torch.get_num_threads(), len(items) // BLOCKS_A_THREAD)
    helpers = [threading.Thread(target=take) for _ in range(count - 1)]
    for helper in helpers:
        helper.start()
    take()
    for helper in helpers:
        helper.join()
    if errors:
        raise errors[0]


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


def mix_noise_transposed(g: Tensor, pairing: Pairing, factor: Values | None) -> Tensor:
    """Return the gradient of x for the gradient `g` of the output; the factors of all elements broadcast against it."""
    if g.dtype in HALF:
        return mix_noise_transposed(g.float(), pairing, factor).to(g.dtype)
    out = fresh_like(g)
    target, mix = out.numpy(), _mixer(g.detach().numpy(), factor, pairing, g.dtype, transposed=True)
    in_threads(lambda _, block: mix(target[block.at], block), _blocks_to_mix(g))
    return out


def _blocks_to_mix(x: Tensor) -> tuple[Block, ...]:
    return blocks_of(tuple(x.shape), limit=BLOCK if is_small(x.shape) else 0)


def _mixer(
    source: Values, factor: Values | None, pairing: Pairing, dtype: torch.dtype, *, transposed: bool
) -> Callable[[Values, Block], None]:
    """Return what writes a block of `mix` of h = source * factor, or of its transposed.

    Either is own part * h + (other part * h)[order].
    """

    def h_at(index: Index, out: Values) -> Values:
        if factor is None:
            return source[index]
        return np.multiply(source[index], factor[narrowed(index, factor)], out)

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


def narrowed(index: Index, noise: Values) -> Index:
    """Return the index of a block in a noise that has one value for the whole of some axes."""
    return tuple(
        part if noise.shape[axis] > 1 else (slice(None) if isinstance(part, slice | np.ndarray) else 0)
        for axis, part in enumerate(index)
    )
