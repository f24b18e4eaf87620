"""The streams of random values: one of the compiled kernel, one of torch's generators with a generator a block."""

from __future__ import annotations

import functools
import math

import torch
from torch import Tensor

from nfm.core import compiled
from nfm.core.blocks import Block, Draw, blocks_of, draw_whole
from nfm.core.kernel import kernel_in_use
from nfm.core.laws import LAWS
from nfm.core.noise_plan import Source
from nfm.randomness import numpy_generator, torch_generator


def draw_values(law: str, shape: tuple[int, ...], key: int, device: torch.device) -> Tensor:
    """Draw contiguous float32 values of `law` at level 1."""
    return draw_source(Source(law, key), shape, device)


def draw_source(source: Source, shape: tuple[int, ...], device: torch.device) -> Tensor:
    """Draw contiguous float32 values: the same for every dtype and memory format of the feature."""
    if device.type != "cpu":
        values = torch.empty(shape, dtype=torch.float32, device=device)
        return LAWS[source.law].fill(values, torch_generator(source.key, device), source.level)
    return draw_whole(source, shape, stream_of(shape))


def stream_of(shape: tuple[int, ...]) -> Draw:
    """Return what draws the values of a block of a CPU feature of `shape`, with the kernel in use."""
    return _compiled_stream(shape) if kernel_in_use() == "c" else _torch_stream(shape)


def _compiled_stream(shape: tuple[int, ...]) -> Draw:
    size = math.prod(shape[1:])
    return lambda out, source, number, block: compiled.fill(out, source, size=size, first=block.first)


def _torch_stream(shape: tuple[int, ...]) -> Draw:
    count = len(blocks_of(shape))

    @functools.cache
    def seeds(key: int) -> list[int]:
        return numpy_generator(key).integers(2**63, size=count).tolist()

    def draw(out: Tensor, source: Source, number: int, block: Block) -> Tensor:
        return LAWS[source.law].fill(out, torch_generator(seeds(source.key)[number]), source.level)

    return draw
