"""Blocks of a feature, and threads over them: runs of elements, parts of one example or a few whole ones."""

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

SMALL = 2**20  # elements of a feature whose noises are drawn as one block
BLOCK, BIG_BLOCK = 2**16, 3 * 2**16  # elements: small ones wait for Python's lock, big ones leave the cache
BLOCKS = 8  # that a feature is cut into, if they are of such a size
BLOCKS_A_THREAD = 4  # fewer are done sooner by one thread
LONG = 2**14  # elements of an example that is mixed by itself: several at once are copied first

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


def in_threads(work: Callable[[int, Item], object], items: Sequence[Item], *, a_thread: int = 0) -> None:
    """Let up to `torch.get_num_threads()` threads take numbered items from one pile; they end with the call.

    a_thread: how many items a thread is worth, 0 for that of blocks.
    """
    pile = iter(enumerate(items))
    errors: list[BaseException] = []

    def take() -> None:
        try:
            with torch.inference_mode():  # a new thread knows nothing of the caller's mode
                for number, item in pile:
                    work(number, item)
        except BaseException as error:
            errors.append(error)

    count = min(torch.get_num_threads(), len(items) // (a_thread or BLOCKS_A_THREAD))
    helpers = [threading.Thread(target=take) for _ in range(count - 1)]
    for helper in helpers:
        helper.start()
    take()
    for helper in helpers:
        helper.join()
    if errors:
        raise errors[0]


def narrowed(index: Index, noise: Values) -> Index:
    """Return the index of a block in a noise that has one value for the whole of some axes."""
    return tuple(
        part if noise.shape[axis] > 1 else (slice(None) if isinstance(part, slice | np.ndarray) else 0)
        for axis, part in enumerate(index)
    )
