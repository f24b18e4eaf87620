"""Mix and noise without a compiler, fast: threads over blocks that stay in cache, nothing big made but the output.

A block is a few columns of all examples, 65,536 to 262,144 elements: so it holds every partner, and either pass reads
and writes it once. A thread takes a block, mixes it, perturbs it with its noise, and writes the result; the values
do not depend on the number of threads. The sums are those of ``mixing`` and ``noise``, which are the oracle: both give
the same bits. They are done by numpy on the memory of the tensors: it makes views sooner, and never starts threads of
its own.
"""

from __future__ import annotations

import functools
import itertools
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import DTypeLike, NDArray
from torch import Tensor

from nfm.core.mixing import Pairing
from nfm.core.pages import fresh_like

SMALL = 2**20  # elements of a feature whose noises are drawn as one block
BLOCK, BIG_BLOCK = 2**16, 2**18  # elements: small ones wait for Python's lock, big ones leave the cache
BLOCKS = 32  # that a feature is cut into, if they are of such a size
BLOCKS_A_THREAD = 4  # fewer are done sooner by one thread
HALF = (torch.float16, torch.bfloat16)

Index = tuple[int | slice, ...]
Item = TypeVar("Item")
Values = NDArray[Any]  # float32, or float64 where the feature is


class Block(NamedTuple):
    """Some columns of all examples: where they are, how many elements lie in blocks before it, and its shape."""

    at: Index
    first: int
    shape: tuple[int, ...]


def is_small(shape: Sequence[int]) -> bool:
    """Tell whether noises of `shape` are drawn as one block."""
    return math.prod(shape) <= SMALL


@functools.lru_cache(maxsize=128)
def blocks_of(shape: tuple[int, ...], limit: int = 0) -> tuple[Block, ...]:
    """Cut features of `shape` into blocks of at most `limit` elements (0: by its size), or of one column.

    >>> [(block.first, block.shape) for block in blocks_of((2, 3, 4), limit=16)]
    [(0, (2, 1, 4)), (8, (2, 2, 4))]
    """
    examples = shape[0]
    if not limit:
        limit = SMALL if is_small(shape) else min(BIG_BLOCK, max(BLOCK, math.prod(shape) // BLOCKS))
    columns = _cut(shape[1:], max(1, limit // max(1, examples)))
    return tuple(
        Block((slice(None), *at), examples * first, (examples, *part)) for at, first, part in columns
    )


def _cut(shape: tuple[int, ...], limit: int) -> Iterator[Block]:
    """Yield parts of `shape` in order: numbers for the leading axes, a range of the next, and all of the others."""
    if not shape:
        yield Block((), 0, ())
        return
    axis = next(axis for axis in range(len(shape)) if math.prod(shape[axis + 1 :]) <= limit)
    rows, rest = shape[axis], shape[axis + 1 :]
    inner, leading = math.prod(rest), itertools.product(*(range(size) for size in shape[:axis]))
    for number, index in enumerate(leading):
        for start, stop in _ranges(rows, max(1, limit // max(1, inner))):
            yield Block((*index, slice(start, stop)), (number * rows + start) * inner, (stop - start, *rest))


def _ranges(rows: int, most: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of nearly equal length, `most` at most."""
    count = -(-rows // most)
    edges = [rows * part // count for part in range(count + 1)] if count else []
    return itertools.pairwise(edges)


class Scratch:
    """The small buffers of one thread: fresh memory for each block would cost more than the sums."""

    def __init__(self) -> None:
        self._buffers: dict[tuple[str, np.dtype[Any]], Values] = {}

    def take(self, name: str, shape: tuple[int, ...], dtype: DTypeLike = np.float32) -> Values:
        """Return the buffer `name` as a contiguous array of `shape`; what it held is lost."""
        count, key = math.prod(shape), (name, np.dtype(dtype))
        buffer = self._buffers.get(key)
        if buffer is None or len(buffer) < count:
            buffer = self._buffers[key] = np.empty(count, dtype)
        return buffer[:count].reshape(shape)


_IDLE: list[Scratch] = []  # for the next call, one a thread: three or four blocks, up to 1 MiB each


@contextmanager
def _scratch() -> Iterator[Scratch]:
    try:
        scratch = _IDLE.pop()
    except IndexError:
        scratch = Scratch()
    try:
        yield scratch
    finally:
        _IDLE.append(scratch)


def in_threads(work: Callable[[Scratch, int, Item], object], items: Sequence[Item]) -> None:
    """Let up to `torch.get_num_threads()` threads take numbered items from one pile; they end with the call."""
    pile = iter(enumerate(items))
    errors: list[BaseException] = []

    def take() -> None:
        try:
            with (
                torch.inference_mode(),
                _scratch() as scratch,
            ):  # a new thread knows nothing of the caller's mode
                for number, item in pile:
                    work(scratch, number, item)
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


# The additive noise and the multiplicative factor of a block, None where there is none
Noises = Callable[[Scratch, int, Block], tuple[Values | None, Values | None]]


def mix_noise(x: Tensor, pairing: Pairing, noises: Noises) -> Tensor:
    """Return `x` mixed and perturbed."""
    mix = _mixer(pairing, x.dtype, transposed=False)

    def block_of(h: Values, out: Values, scratch: Scratch, number: int, block: Block) -> None:
        add, factor = noises(scratch, number, block)
        h = mix(h, None, scratch)
        if factor is not None:
            np.multiply(h, factor, out=h)
        if add is None:
            np.copyto(out, h)
        else:
            np.add(h, add, out=out)

    return _map_blocks(block_of, x)


def mix_noise_transposed(g: Tensor, pairing: Pairing, noises: Noises) -> Tensor:
    """Return the gradient of x for the gradient `g` of the output."""
    mix = _mixer(pairing, g.dtype, transposed=True)

    def block_of(h: Values, out: Values, scratch: Scratch, number: int, block: Block) -> None:
        _, factor = noises(scratch, number, block)
        if factor is not None:
            h = np.multiply(h, factor, out=scratch.take("mixed", h.shape, h.dtype))
        mix(h, out, scratch)

    return _map_blocks(block_of, g)


def _map_blocks(block_of: Callable[[Values, Values, Scratch, int, Block], None], x: Tensor) -> Tensor:
    """Return a tensor like `x` whose blocks `block_of` wrote, each from that block of `x`."""
    if x.dtype in HALF:  # added up in float32
        return _map_blocks(block_of, x.float()).to(x.dtype)
    out = fresh_like(x)
    source, target = x.detach().numpy(), out.numpy()

    def work(scratch: Scratch, number: int, block: Block) -> None:
        block_of(source[block.at], target[block.at], scratch, number, block)

    in_threads(work, blocks_of(tuple(x.shape), limit=BLOCK if is_small(x.shape) else 0))
    return out


def _mixer(
    pairing: Pairing, dtype: torch.dtype, *, transposed: bool
) -> Callable[[Values, Values | None, Scratch], Values]:
    """Return what writes `mix` or its transposed of a block h: own part * h + (part handed on * h)[order].

    Where it is told nothing to write to, it writes to a buffer of the thread.
    """
    if pairing.unmixed:
        return _copied
    order = (pairing.inverse if transposed else pairing.partner).numpy()
    own, other = pairing.parts(torch.float32 if dtype in HALF else dtype)
    handed_on = other[pairing.inverse] if pairing.per_sample and not transposed else other

    def mix(h: Values, out: Values | None, scratch: Scratch) -> Values:
        each = (-1, *[1] * (h.ndim - 1))
        given, taken = (scratch.take(name, h.shape, h.dtype) for name in ("given", "taken"))
        np.multiply(h, handed_on.numpy().reshape(each), out=given)
        np.take(given, order, axis=0, out=taken, mode="clip")  # "raise" would copy the output
        np.multiply(h, own.numpy().reshape(each), out=given)
        return np.add(given, taken, out=given if out is None else out)

    return mix


def _copied(h: Values, out: Values | None, scratch: Scratch) -> Values:
    target = scratch.take("given", h.shape, h.dtype) if out is None else out
    np.copyto(target, h)
    return target
