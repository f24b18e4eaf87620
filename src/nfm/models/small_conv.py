"""A small network of three convolutions for images of 8 to 32 px."""

from __future__ import annotations

from torch import nn

from nfm.models.catalogue import MODELS
from nfm.models.layers import conv_norm_relu
from nfm.models.network import ConvNetwork
from nfm.models.task import Task, widened


class SmallConv(ConvNetwork):
    """Three stages of 3x3, norm, ReLU with 32, 64, 128 channels times `width`; 95k parameters at width 1."""

    default_sites = ("input", "stage1", "stage2")

    def __init__(self, task: Task, *, width: float = 1.0) -> None:
        task.image_side("small_conv")
        first, second, third = (widened(channels, width) for channels in (32, 64, 128))
        super().__init__(
            task,
            stem=nn.Identity(),
            stages=[
                conv_norm_relu(task.in_channels, first),
                conv_norm_relu(first, second, stride=2),
                conv_norm_relu(second, third, stride=2),
            ],
            features=third,
        )


MODELS.add("small_conv", SmallConv)
