"""Wide residual networks for 32 px images (Zagoruyko & Komodakis 2016, arXiv:1605.07146)."""

from __future__ import annotations

from functools import partial

from torch import nn

from nfm.errors import UsageError
from nfm.models.catalogue import MODELS
from nfm.models.layers import conv, stages
from nfm.models.network import ConvNetwork
from nfm.models.preact import PreActBlock
from nfm.models.task import Task, check_rate, widened


class WideResNet(ConvNetwork):
    """A 16-channel stem and three stages of (depth - 4) / 6 pre-activation blocks, `factor` times wider.

    `dropout` is the share left out between the two convolutions of a block (.3 in the paper's CIFAR runs).
    """

    default_sites = ("input", "stage1", "stage2")

    def __init__(self, depth: int, factor: float, task: Task, *, dropout: float = 0.0) -> None:
        task.image_side(f"wrn{depth}_{factor:g}")
        if depth < 10 or depth % 6 != 4:
            raise UsageError(f"depth: expected 6 n + 4 (10, 16, 22, 28, 40 ...), got {depth}")
        channels = [16, *(widened(base, factor) for base in (16, 32, 64))]
        block = partial(PreActBlock, dropout=check_rate("dropout", dropout))
        super().__init__(
            task,
            stem=conv(task.in_channels, 16),
            stages=stages(block, channels, [(depth - 4) // 6] * 3),
            final=nn.Sequential(nn.BatchNorm2d(channels[-1]), nn.ReLU()),
            features=channels[-1],
        )


for _depth, _factor in ((28, 10), (28, 4), (28, 2), (40, 2)):
    MODELS.add(f"wrn{_depth}_{_factor}", partial(WideResNet, _depth, _factor))
