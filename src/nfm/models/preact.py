"""Pre-activation residual networks for 32 px images (He et al. 2016, arXiv:1603.05027)."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from nfm.models.catalogue import MODELS
from nfm.models.initialisation import Law, plain_law
from nfm.models.layers import conv, stages
from nfm.models.network import ConvNetwork
from nfm.models.task import Task, widened


class PreActBlock(nn.Module):
    """x + F(x), F = (norm, ReLU, 3x3) twice; a projection, where one is needed, takes the first norm-ReLU.

    `authors_form`: the shortcut takes the first norm-ReLU even where it is the identity.
    `dropout` acts between the two convolutions (arXiv:1605.07146).
    """

    def __init__(
        self, inputs: int, outputs: int, stride: int, *, authors_form: bool = False, dropout: float = 0.0
    ) -> None:
        super().__init__()
        projects = stride != 1 or inputs != outputs
        self.shortcut_from_norm = projects or authors_form
        self.shortcut = conv(inputs, outputs, kernel=1, stride=stride) if projects else nn.Identity()
        self._add_branch(inputs, outputs, stride)
        self.dropout = nn.Dropout(dropout)

    def _add_branch(self, inputs: int, outputs: int, stride: int) -> None:
        self.norm1, self.conv1 = nn.BatchNorm2d(inputs), conv(inputs, outputs, stride=stride)
        self.norm2, self.conv2 = nn.BatchNorm2d(outputs), conv(outputs, outputs)

    def _branch(self, first: Tensor) -> Tensor:
        return self.conv2(self.dropout(F.relu(self.norm2(self.conv1(first)))))

    def forward(self, x: Tensor) -> Tensor:
        first = F.relu(self.norm1(x))
        return self._branch(first) + self.shortcut(first if self.shortcut_from_norm else x)


class PreActBottleneck(PreActBlock):
    """x + F(x), F = norm, ReLU, 1x1; norm, ReLU, 3x3 (with the stride); norm, ReLU, 1x1."""

    def _add_branch(self, inputs: int, outputs: int, stride: int) -> None:
        middle = outputs // 4
        self.norm1, self.conv1 = nn.BatchNorm2d(inputs), conv(inputs, middle, kernel=1)
        self.norm2, self.conv2 = nn.BatchNorm2d(middle), conv(middle, middle, stride=stride)
        self.norm3, self.conv3 = nn.BatchNorm2d(middle), conv(middle, outputs, kernel=1)

    def _branch(self, first: Tensor) -> Tensor:
        return self.conv3(F.relu(self.norm3(super()._branch(first))))


DEPTHS: dict[int, tuple[type[PreActBlock], int, tuple[int, ...]]] = {
    18: (PreActBlock, 1, (2, 2, 2, 2)),
    34: (PreActBlock, 1, (3, 4, 6, 3)),
    50: (PreActBottleneck, 4, (3, 4, 6, 3)),
}
"""depth -> block, its expansion, blocks in each stage."""


class PreActResNet(ConvNetwork):
    """A 3x3 stem, four stages of pre-activation blocks, a final norm-ReLU.

    `authors_form=True` is the variant of the NFM authors' code: identity shortcuts pass through the
    block's norm-ReLU and there is no final norm-ReLU. `width` multiplies every channel count: the paper's
    "Wide ResNet-18" is depth 18 at width 2.
    """

    initial_law: ClassVar[Law] = staticmethod(plain_law)

    default_sites = ("input", "stage1", "stage2", "stage3")

    def __init__(self, depth: int, task: Task, *, width: float = 1.0, authors_form: bool = False) -> None:
        task.image_side(f"preact_resnet{depth}")
        block, expansion, counts = DEPTHS[depth]
        stem = widened(64, width)
        channels = [stem, *(widened(64 * 2**index, width) * expansion for index in range(len(counts)))]
        features = channels[-1]
        super().__init__(
            task,
            stem=conv(task.in_channels, stem),
            stages=stages(partial(block, authors_form=authors_form), channels, counts),
            final=None if authors_form else nn.Sequential(nn.BatchNorm2d(features), nn.ReLU()),
            features=features,
        )


for _depth in DEPTHS:
    MODELS.add(f"preact_resnet{_depth}", partial(PreActResNet, _depth))
