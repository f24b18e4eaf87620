"""Mix and noise with PyTorch alone, fast: threads over blocks that stay in cache, nothing kept but the output.

The feature is cut into blocks of at most 32,768 elements, a generator each. A thread takes a block, mixes it, draws its
noise, and writes the result; so the only big tensor is the output, and the values do not depend on the number of
threads. The sums are those of ``mixing`` and ``noise``, which are the oracle: both give the same bits.
"""

from __future__ import annotations

import functools
import itertools
import math
import threading
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from nfm.core.mixing import Pairing
from nfm.core.noise_plan import NoisePlan, Source
from nfm.core.pages import fresh_like

BLOCK = 2**15  # elements: no more than torch works on without threads of its own
BLOCKS_A_THREAD = (
    16  # fewer are done sooner by one: threads of Python wait for each other between two operations
)
HALF = (torch.float16, torch.bfloat16)

Index = tuple[int | slice, ...]
Draw = Callable[[Tensor, Source, int, "Block"], Tensor]  # fills a tensor with the raw values of a block


class Block(NamedTuple):
    """A part of a feature: whole numbers for the leading axes, a range of the next, and all of the others."""

    at: Index
    first: int
    shape: tuple[int, ...]


@functools.lru_cache(maxsize=128)
def blocks_of(shape: tuple[int, ...], limit: int = BLOCK) -> tuple[Block, ...]:
    """Cut `shape` into blocks of at most `limit` elements, in order, each contiguous in a contiguous tensor.

    >>> [(block.first, block.shape) for block in blocks_of((2, 3, 4), limit=8)]
    [(0, (1, 4)), (4, (2, 4)), (12, (1, 4)), (16, (2, 4))]
    """
    axis = next((axis for axis in range(len(shape)) if math.prod(shape[axis + 1 :]) <= limit), 0)
    if not shape:
        return (Block((), 0, ()),)
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
    """The small buffers of one thread, made once a call: fresh memory for each block would cost more than the sums."""

    def __init__(self) -> None:
        self._buffers: dict[tuple[str, torch.dtype], Tensor] = {}

    def take(self, name: str, shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Tensor:
        """Return the buffer `name` as a contiguous tensor of `shape`; what it held is lost."""
        count, buffer = math.prod(shape), self._buffers.get((name, dtype))
        if (
            buffer is None or len(buffer) < count
        ):  # more than a block: one element of each of very many examples
            buffer = self._buffers[name, dtype] = torch.empty(max(BLOCK, count), dtype=dtype)
        return buffer[:count].view(shape)


Work = Callable[[Scratch, int, Block], object]


def in_threads(work: Work, blocks: tuple[Block, ...]) -> None:
    """Let up to `torch.get_num_threads()` threads take numbered blocks from one pile; they end with the call."""
    pile = iter(enumerate(blocks))
    errors: list[BaseException] = []

    def take() -> None:
        scratch = Scratch()
        try:
            with torch.inference_mode():  # a new thread knows nothing of the caller's mode
                for number, block in pile:
                    work(scratch, number, block)
        except BaseException as error:
            errors.append(error)

    count = min(torch.get_num_threads(), len(blocks) // BLOCKS_A_THREAD)
    helpers = [threading.Thread(target=take) for _ in range(count - 1)]
    for helper in helpers:
        helper.start()
    take()
    for helper in helpers:
        helper.join()
    if errors:
        raise errors[0]


def mix_noise(x: Tensor, pairing: Pairing, plan: NoisePlan, draw: Draw) -> Tensor:
    """Return `x` mixed and perturbed; `draw` draws the raw values of a block."""
    out, wide = fresh_like(x), _wide(x)
    mix, noises = _mixer(x, pairing), _noises(plan, tuple(x.shape), draw)

    def work(scratch: Scratch, number: int, block: Block) -> None:
        target = out[block.at]
        h = target if wide == out.dtype else scratch.take("h", block.shape, wide)
        mix(h, scratch, block)
        add, mult = noises(scratch, number, block)
        if mult is not None:
            h.mul_(mult.add_(1))
        if add is not None:
            h.add_(add)
        if h is not target:
            target.copy_(h)

    in_threads(work, blocks_of(tuple(x.shape)))
    return out


def mix_noise_transposed(g: Tensor, pairing: Pairing, plan: NoisePlan, draw: Draw) -> Tensor:
    """Return the gradient of x for the gradient `g` of the output; the noise is drawn again."""
    unmixed, wide = Pairing(pairing.partner, pairing.weight.new_ones(())), _wide(g)
    noisy = mix_noise(g.to(wide), unmixed, plan.linear_part(), draw)
    if pairing.unmixed:
        return noisy.to(g.dtype)
    out = noisy if wide == g.dtype else fresh_like(g)
    columns, inverse = blocks_of(tuple(g.shape[1:]), max(1, BLOCK // len(g))), pairing.inverse
    each = (-1, *[1] * len(columns[0].shape))
    own, other = (part.view(each) for part in pairing.parts(wide))

    def work(scratch: Scratch, _: int, block: Block) -> None:
        column = noisy[(slice(None), *block.at)]  # of all examples: [n, ...]
        theirs, handed = (scratch.take(name, tuple(column.shape), wide) for name in ("theirs", "handed"))
        torch.index_select(torch.mul(column, other, out=theirs), 0, inverse, out=handed)
        mine = torch.mul(column, own, out=theirs)
        out[(slice(None), *block.at)] = mine.add_(handed)

    in_threads(work, columns)
    return out


def _wide(x: Tensor) -> torch.dtype:
    """Return the dtype in which features like `x` are added up."""
    return torch.float32 if x.dtype in HALF else x.dtype


def _mixer(x: Tensor, pairing: Pairing) -> Callable[[Tensor, Scratch, Block], object]:
    """Return a function that fills a tensor with a block of the mixed `x`."""
    if pairing.unmixed:
        return lambda h, scratch, block: h.copy_(x[block.at])
    wide = _wide(x)
    own, other = pairing.parts(wide)
    partner, each = pairing.partner.tolist(), (-1, *[1] * (x.ndim - 1))
    own_parts, other_parts = (part.expand(len(x)).tolist() for part in (own, other))

    def parts(first: int | slice) -> tuple[float | Tensor, float | Tensor]:
        if isinstance(first, int):
            return own_parts[first], other_parts[first]
        rows = first if pairing.per_sample else slice(None)
        return own[rows].view(each), other[rows].view(each)

    def theirs(first: int | slice, rest: Index) -> Tensor:
        return (
            x[(partner[first], *rest)]
            if isinstance(first, int)
            else x.index_select(0, pairing.partner[first])
        )

    def mix(h: Tensor, scratch: Scratch, block: Block) -> None:
        first, *rest = block.at
        mine, others = parts(first)
        other = scratch.take("other", block.shape, wide)
        _product(x[block.at], mine, out=h)
        h.add_(_product(theirs(first, tuple(rest)), others, out=other))

    return mix


def _product(x: Tensor, part: float | Tensor, *, out: Tensor) -> Tensor:
    """Write part * x to `out`, in the precision of `out`."""
    if x.dtype != out.dtype:
        return out.copy_(x).mul_(part)
    return torch.mul(x, part, out=out)


Noises = Callable[[Scratch, int, Block], tuple[Tensor | None, Tensor | None]]


def _noises(plan: NoisePlan, shape: tuple[int, ...], draw: Draw) -> Noises:
    """Return what draws both noises of a block; values that elements share are few, and drawn at once."""
    if not plan.fine(shape):
        return _shared_noises(plan, shape, draw)

    def own(scratch: Scratch, number: int, block: Block) -> tuple[Tensor | None, Tensor | None]:
        return plan.draw(
            lambda source: draw(scratch.take(str(source.key), block.shape), source, number, block)
        )

    return own


def _shared_noises(plan: NoisePlan, shape: tuple[int, ...], draw: Draw) -> Noises:
    whole = plan.draw(lambda source: draw_whole(source, plan.shape(shape), draw))

    def shared(scratch: Scratch, number: int, block: Block) -> tuple[Tensor | None, Tensor | None]:
        add, mult = (None if noise is None else noise[_narrowed(block.at, noise)].clone() for noise in whole)
        return add, mult

    return shared


def _narrowed(index: Index, noise: Tensor) -> Index:
    """Return the index of a block in a noise that has one value for the whole of some axes."""
    return tuple(
        part if noise.shape[axis] > 1 else (0 if isinstance(part, int) else slice(None))
        for axis, part in enumerate(index)
    )


def draw_whole(source: Source, shape: tuple[int, ...], draw: Draw) -> Tensor:
    """Return all values of `source` for a tensor of `shape`: contiguous float32."""
    values = torch.empty(shape, dtype=torch.float32)
    in_threads(lambda _, number, block: draw(values[block.at], source, number, block), blocks_of(shape))
    return values
