"""The small residual networks for 32 px images of He et al. 2015 (arXiv:1512.03385, section 4.2)."""

from __future__ import annotations

from functools import partial

import torch.nn.functional as F
from torch import Tensor, nn

from nfm.models.catalogue import MODELS
from nfm.models.layers import conv_norm_relu, stages
from nfm.models.network import ConvNetwork
from nfm.models.postact import Block
from nfm.models.task import Task


class PadShortcut(nn.Module):
    """Shortcut option A: every `stride`-th pixel, and `extra` zero channels, half before and half after."""

    def __init__(self, extra: int, stride: int) -> None:
        super().__init__()
        self.before, self.after, self.stride = extra // 2, extra - extra // 2, stride

    def forward(self, x: Tensor) -> Tensor:
        return F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, self.before, self.after))


def _with_padding(inputs: int, outputs: int, stride: int) -> nn.Module:
    same = stride == 1 and inputs == outputs
    shortcut = nn.Identity() if same else PadShortcut(outputs - inputs, stride)
    return Block(inputs, outputs, stride, shortcut=shortcut)


class CifarResNet(ConvNetwork):
    """A 3x3 stem and three stages of (depth - 2) / 6 blocks with 16, 32 and 64 channels."""

    default_sites = ("input", "stage1", "stage2")

    def __init__(self, depth: int, task: Task) -> None:
        task.image_side(f"cifar_resnet{depth}")
        super().__init__(
            task,
            stem=conv_norm_relu(task.in_channels, 16),
            stages=stages(_with_padding, (16, 16, 32, 64), [(depth - 2) // 6] * 3),
            features=64,
        )


for _depth in (20, 32, 44, 56):
    MODELS.add(f"cifar_resnet{_depth}", partial(CifarResNet, _depth))
