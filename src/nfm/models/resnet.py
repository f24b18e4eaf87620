"""Residual networks for 224 px images (He et al. 2015, arXiv:1512.03385), laid out as torchvision's."""

from __future__ import annotations

from functools import partial

from torch import nn

from nfm.models.catalogue import MODELS
from nfm.models.layers import conv, conv_norm_relu, stages
from nfm.models.network import ConvNetwork
from nfm.models.postact import Block, Bottleneck
from nfm.models.task import Task


def _with_projection(
    block: type[Block] | type[Bottleneck], inputs: int, outputs: int, stride: int
) -> nn.Module:
    """Return a block whose shortcut is option B: 1x1 and norm where the shape changes, else the identity."""
    shortcut: nn.Module = nn.Identity()
    if stride != 1 or inputs != outputs:
        shortcut = nn.Sequential(conv(inputs, outputs, kernel=1, stride=stride), nn.BatchNorm2d(outputs))
    return block(inputs, outputs, stride, shortcut=shortcut)


DEPTHS: dict[int, tuple[type[Block] | type[Bottleneck], tuple[int, ...], tuple[int, ...]]] = {
    18: (Block, (64, 128, 256, 512), (2, 2, 2, 2)),
    50: (Bottleneck, (256, 512, 1024, 2048), (3, 4, 6, 3)),
}
"""depth -> block, output channels and number of blocks of each stage."""


class ResNet(ConvNetwork):
    """A 7x7 stem that divides the size by 4, and four stages."""

    default_sites = ("input", "stage1", "stage2", "stage3")

    def __init__(self, depth: int, task: Task) -> None:
        task.image_side(f"resnet{depth}")
        block, outputs, counts = DEPTHS[depth]
        stem = conv_norm_relu(task.in_channels, 64, kernel=7, stride=2)
        stem.append(nn.MaxPool2d(3, stride=2, padding=1))
        super().__init__(
            task,
            stem=stem,
            stages=stages(partial(_with_projection, block), (64, *outputs), counts),
            features=outputs[-1],
        )


for _depth in DEPTHS:
    MODELS.add(f"resnet{_depth}", partial(ResNet, _depth))
