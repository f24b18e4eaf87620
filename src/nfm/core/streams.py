"""The streams of random values: one of the compiled kernel, one of numpy's generators with a generator a block."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from nfm.core import compiled, kept
from nfm.core.blocks import BLOCK, Block, Values, blocks_of, in_threads, is_small, narrowed
from nfm.core.blockwise import Noises
from nfm.core.factors import Factors
from nfm.core.kernel import kernel_in_use
from nfm.core.laws import LAWS
from nfm.core.noise_plan import NoisePlan, Source
from nfm.core.pages import fresh_like
from nfm.randomness import passing_generator, torch_generator

CPU = torch.device("cpu")
WORTH_A_THREAD = 2  # blocks of which only a few are drawn


def draw_values(law: str, shape: tuple[int, ...], key: int, device: torch.device) -> Tensor:
    """Draw contiguous float32 values of `law` at level 1."""
    return draw_source(Source(law, key), shape, device)


def draw_source(source: Source, shape: tuple[int, ...], device: torch.device) -> Tensor:
    """Draw contiguous float32 values: the same for every dtype and memory format of the feature."""
    values = torch.empty(shape, dtype=torch.float32, device=device)
    if device.type != "cpu":
        return LAWS[source.law].fill(values, torch_generator(source.key, device), source.level)
    return _fill_compiled(values, source) if kernel_in_use() == "c" else _fill_blocks(values, source)


def _fill_compiled(values: Tensor, source: Source) -> Tensor:
    flat, size = values.view(-1), math.prod(values.shape[1:])
    in_threads(
        lambda _, first: compiled.fill(flat[first : first + BLOCK], source, size=size, first=first),
        range(0, len(flat), BLOCK),
    )
    return values


def _fill_blocks(values: Tensor, source: Source) -> Tensor:
    fill, whole = _filling(source, tuple(values.shape)), values.numpy()
    in_threads(lambda number, block: fill(number, whole[block.at]), blocks_of(tuple(values.shape)))
    return values


def _filling(source: Source, shape: tuple[int, ...]) -> Callable[[int, Values], Values]:
    """Return what fills the block of a number, of values of `shape`."""
    fill_block, level = LAWS[source.law].fill_block, source.level
    starts = passing_generator(source.key).integers(2**64, size=(len(blocks_of(shape)), 3), dtype=np.uint64)

    def fill(number: int, out: Values) -> Values:
        fill_block(out, starts[number], level)
        return out

    return fill


def drawn_at_once(plan: NoisePlan, shape: tuple[int, ...]) -> bool:
    """Tell whether the noises of a feature of `shape` are drawn by one generator each."""
    return kernel_in_use() == "torch" and plan.fine(shape) and is_small(shape)


def whole_noises_of(plan: NoisePlan, shape: tuple[int, ...]) -> tuple[Tensor | None, Tensor | None]:
    """Return the additive noise and the factors of a small feature, which are kept for the backward pass."""
    return _drawn_whole(plan, shape, kept.keep(plan, shape))


@contextmanager
def whole_factors_of(plan: NoisePlan, shape: tuple[int, ...]) -> Iterator[Tensor | None]:
    """Lend the factors of a small feature again, for the backward pass."""
    with kept.taken(plan, shape) as factors:
        if factors is None:
            yield _drawn_whole(plan.linear_part(), shape, None)[1]
        else:
            yield factors[: math.prod(shape)].view(shape)


def _drawn_whole(
    plan: NoisePlan, shape: tuple[int, ...], factors: Tensor | None
) -> tuple[Tensor | None, Tensor | None]:
    def values(source: Source) -> Tensor:
        if factors is None or source is not plan.mult:
            return _fill_blocks(torch.empty(shape, dtype=torch.float32, device=CPU), source)
        return _fill_blocks(factors[: math.prod(shape)].view(shape), source)

    add, mult = plan.draw(values)
    return add, None if mult is None else mult.add_(1)


def noises_of(plan: NoisePlan, shape: tuple[int, ...]) -> Noises:
    """Return what tells the noises of a block of a feature of `shape`, for a forward pass."""
    if kernel_in_use() == "c" or not plan.fine(shape):
        return _drawn_before(plan, shape)
    return _drawn_by_block(plan, shape, kept.keep(plan, shape))


@contextmanager
def factors_of(plan: NoisePlan, shape: tuple[int, ...]) -> Iterator[Factors | None]:
    """Lend the factors of a feature again, for the backward pass; None: there are none."""
    plan = plan.linear_part()
    if plan.mult is None:
        yield None
    elif kernel_in_use() == "c" or not plan.fine(shape):
        values = _drawn_at_once(plan, shape)[1]
        yield None if values is None else Factors(values)
    else:
        with kept.taken(plan, shape) as first:
            if first is None:
                yield Factors(_factors_by_block(plan, shape, 0))
            elif kept.count_of(shape) == math.prod(shape):
                yield Factors(first[: math.prod(shape)].view(shape).numpy())
            else:
                count = kept.count_of(shape)
                others = _factors_by_block(plan, shape, count)
                yield Factors(first[:count].view(-1, *shape[1:]).numpy(), others)


def _factors_by_block(plan: NoisePlan, shape: tuple[int, ...], before: int) -> Values:
    """Return the factors of the examples behind `before` elements."""
    factors = fresh_like(torch.empty(math.prod(shape) - before, dtype=torch.float32, device=CPU))
    noises, flat = _drawn_by_block(plan, shape, factors, before), factors.numpy()
    behind = [(number, block) for number, block in enumerate(blocks_of(shape)) if block.first >= before]
    in_threads(lambda _, numbered: noises(*numbered, flat), behind, a_thread=WORTH_A_THREAD)
    return flat.reshape(-1, *shape[1:])


def _drawn_by_block(
    plan: NoisePlan, shape: tuple[int, ...], factors: Tensor | None, before: int = 0
) -> Noises:
    """Draw the values of a block when it comes; its factors into `factors`, as far as they reach.

    before: how many elements lie before those of `factors`, which is flat.
    """
    flat = None if factors is None else factors.numpy()
    fillings = {source: _filling(source, shape) for source in plan.sources}

    def noises(number: int, block: Block, h: Values) -> tuple[Values | None, Values | None]:
        start, size = block.first - before, math.prod(block.shape)

        def values_of(source: Source) -> Values:
            if flat is not None and source is plan.mult and start + size <= len(flat):
                out = flat[start : start + size].reshape(block.shape)
            elif source is plan.add and h.dtype == np.float32 and h.flags.c_contiguous:
                out = h
            else:
                out = np.empty(block.shape, np.float32)
            return fillings[source](number, out)

        add, mult = plan.draw(values_of)
        return add, None if mult is None else np.add(mult, 1, mult)

    return noises


def _drawn_before(plan: NoisePlan, shape: tuple[int, ...]) -> Noises:
    """Draw everything at once: values that many elements share, and those of the compiled kernel."""
    drawn = _drawn_at_once(plan, shape)

    def noises(_: int, block: Block, __: Values) -> tuple[Values | None, Values | None]:
        parts = (None if noise is None else noise[narrowed(block.at, noise)] for noise in drawn)
        return next(parts), next(parts)

    return noises


def _drawn_at_once(plan: NoisePlan, shape: tuple[int, ...]) -> tuple[Values | None, Values | None]:
    add, mult = plan.draw(lambda source: draw_source(source, plan.shape(shape), CPU).numpy())
    return add, None if mult is None else np.add(mult, 1, out=mult)
