"""Mix and noise without a compiler, fast: threads over blocks that stay in cache, little made besides the output.

A block is a run of elements: a part of one example, or a few whole ones. A thread takes a block, mixes it with those of
the partners, perturbs it with its noise, and writes the result; the values do not depend on the number of threads. The
sums are those of ``mixing`` and ``noise``, which are the oracle: both give the same bits. They are done by numpy on the
memory of the tensors: it makes views sooner, and never starts threads of its own.
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
BLOCKS = 8  # that a feature is cut into, if they are of such a size
BLOCKS_A_THREAD = 4  # fewer are done sooner by one thread
LONG = 2**14  # elements of an example that is mixed by itself: several at once are copied first
HALF = (torch.float16, torch.bfloat16)

Index = tuple[int | slice, ...]
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


_IDLE: list[Scratch] = []  # for the next call, one a thread: one to three blocks, up to 1 MiB each


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
    if x.dtype in HALF:  # added up in float32
        return mix_noise(x.float(), pairing, noises).to(x.dtype)
    out = fresh_like(x)
    target, mix = out.numpy(), _mixer(x.detach().numpy(), pairing, x.dtype, transposed=False)

    def work(scratch: Scratch, number: int, block: Block) -> None:
        h = target[block.at]
        mix(h, block, scratch)
        add, factor = noises(scratch, number, block)
        if factor is not None:
            np.multiply(h, factor, out=h)
        if add is not None:
            np.add(h, add, out=h)

    in_threads(work, _blocks_to_mix(x))
    return out


def mix_noise_transposed(g: Tensor, pairing: Pairing, noises: Noises | None, memory: Tensor | None) -> Tensor:
    """Return the gradient of x for the gradient `g` of the output; `noises` None stands for no factors.

    memory: float32 [elements], whose values are lost, for `g` times the factors; None asks for some.
    """
    if g.dtype in HALF:
        return mix_noise_transposed(g.float(), pairing, noises, memory).to(g.dtype)
    scaled = g.detach().numpy() if noises is None else _scaled(g, noises, memory)
    out = fresh_like(g)
    target, mix = out.numpy(), _mixer(scaled, pairing, g.dtype, transposed=True)
    in_threads(lambda scratch, _, block: mix(target[block.at], block, scratch), _blocks_to_mix(g))
    return out


def _scaled(g: Tensor, noises: Noises, memory: Tensor | None) -> Values:
    """Return `g` times the factors: a mixture takes every block twice, and each is drawn once."""
    if memory is None or memory.dtype != g.dtype:
        memory = fresh_like(torch.empty(g.numel(), dtype=g.dtype, device="cpu"))
    source, scaled = g.detach().numpy(), memory[: g.numel()].view(g.shape).numpy()

    def work(scratch: Scratch, number: int, block: Block) -> None:
        _, factor = noises(scratch, number, block)
        assert factor is not None
        np.multiply(source[block.at], factor, out=scaled[block.at])

    in_threads(work, _blocks_to_mix(g))
    return scaled


def _blocks_to_mix(x: Tensor) -> tuple[Block, ...]:
    return blocks_of(tuple(x.shape), limit=BLOCK if is_small(x.shape) else 0)


def _mixer(
    source: Values, pairing: Pairing, dtype: torch.dtype, *, transposed: bool
) -> Callable[[Values, Block, Scratch], None]:
    """Return what writes a block of `mix` of `source`, or of its transposed: own part * h + (other part * h)[order]."""
    if pairing.unmixed:
        return lambda out, block, _: np.copyto(out, source[block.at])
    order = (pairing.inverse if transposed else pairing.partner).numpy()
    own, other = (np.broadcast_to(part.numpy(), order.shape) for part in pairing.parts(dtype))
    if transposed:
        other = other[order]

    def mix(out: Values, block: Block, scratch: Scratch) -> None:
        theirs = scratch.take("add", block.shape, source.dtype)  # the noise comes after it
        rows, *inner = block.at
        if isinstance(rows, int):
            np.multiply(source[(order[rows], *inner)], other[rows], out=theirs)
            np.multiply(source[block.at], own[rows], out=out)
        elif theirs[0].size >= LONG:
            for place, row in enumerate(range(rows.start, rows.stop)):
                np.multiply(source[order[row]], other[row], out=theirs[place])
                np.multiply(source[row], own[row], out=out[place])
        else:
            each = (-1, *[1] * (out.ndim - 1))
            _take(source, order[rows], theirs)
            np.multiply(theirs, other[rows].reshape(each), out=theirs)
            np.multiply(source[block.at], own[rows].reshape(each), out=out)
        np.add(out, theirs, out=out)

    return mix


def _take(source: Values, rows: Values, out: Values) -> None:
    if source.flags.c_contiguous:
        np.take(source, rows, axis=0, out=out, mode="clip")  # "raise" would copy the output
    else:  # which would copy the source
        np.copyto(out, source[rows])
