"""The residual blocks of He et al. 2015 (arXiv:1512.03385): the ReLU comes after the sum."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from nfm.models.layers import conv


class Block(nn.Module):
    """ReLU(F(x) + shortcut(x)), F = 3x3, norm, ReLU, 3x3, norm."""

    def __init__(self, inputs: int, outputs: int, stride: int, *, shortcut: nn.Module) -> None:
        super().__init__()
        self.conv1, self.norm1 = conv(inputs, outputs, stride=stride), nn.BatchNorm2d(outputs)
        self.conv2, self.norm2 = conv(outputs, outputs), nn.BatchNorm2d(outputs)
        self.shortcut = shortcut

    def forward(self, x: Tensor) -> Tensor:
        h = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(h)) + self.shortcut(x))


class Bottleneck(nn.Module):
    """ReLU(F(x) + shortcut(x)), F = 1x1, norm, ReLU, 3x3, norm, ReLU, 1x1, norm.

    The stride is on the 3x3 ("v1.5", as in torchvision), not on the first 1x1 as in the article.
    """

    def __init__(self, inputs: int, outputs: int, stride: int, *, shortcut: nn.Module) -> None:
        super().__init__()
        middle = outputs // 4
        self.conv1, self.norm1 = conv(inputs, middle, kernel=1), nn.BatchNorm2d(middle)
        self.conv2, self.norm2 = conv(middle, middle, stride=stride), nn.BatchNorm2d(middle)
        self.conv3, self.norm3 = conv(middle, outputs, kernel=1), nn.BatchNorm2d(outputs)
        self.shortcut = shortcut

    def forward(self, x: Tensor) -> Tensor:
        h = F.relu(self.norm1(self.conv1(x)))
        h = F.relu(self.norm2(self.conv2(h)))
        return F.relu(self.norm3(self.conv3(h)) + self.shortcut(x))
