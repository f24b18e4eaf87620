"""The layers that the convolutional families share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from torch import nn

MakeBlock = Callable[[int, int, int], nn.Module]
"""(input channels, output channels, stride) -> a block."""


def conv(inputs: int, outputs: int, *, kernel: int = 3, stride: int = 1) -> nn.Conv2d:
    """Return a convolution without bias (a norm follows) that keeps the size at stride 1."""
    return nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2, bias=False)


def conv_norm_relu(inputs: int, outputs: int, *, kernel: int = 3, stride: int = 1) -> nn.Sequential:
    """Return convolution, batch norm, ReLU."""
    return nn.Sequential(
        conv(inputs, outputs, kernel=kernel, stride=stride), nn.BatchNorm2d(outputs), nn.ReLU()
    )


def stages(block: MakeBlock, channels: Sequence[int], counts: Sequence[int]) -> list[nn.Module]:
    """Return stage i: `counts[i]` blocks, channels[i] -> channels[i + 1]; all but the first halve sizes."""
    strides = [1] + [2] * (len(counts) - 1)
    ends = zip(pairwise(channels), counts, strides, strict=True)
    return [_stage(block, inputs, outputs, count, stride) for (inputs, outputs), count, stride in ends]


def _stage(block: MakeBlock, inputs: int, outputs: int, count: int, stride: int) -> nn.Sequential:
    first = block(inputs, outputs, stride)
    return nn.Sequential(first, *(block(outputs, outputs, 1) for _ in range(count - 1)))
