"""The networks, batches and training steps that several benchmarks share."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from nfm.data.examples import DataSet, Examples
from nfm.models import build
from nfm.models.layers import conv_norm_relu

BATCH = 128
Loss = Callable[[nn.Module, Tensor, Tensor], Tensor]
Work = Callable[[], object]


def preact_resnet18(width: float) -> nn.Module:
    """Return the paper's network for CIFAR-10, at a share of its width."""
    return build("preact_resnet18", num_classes=10, mean=(0.5,) * 3, std=(0.25,) * 3, width=width)


def vit_lite() -> nn.Module:
    """Return the paper's vision transformer, ViT-Lite-7/4."""
    return build("vit_lite_7_4", num_classes=10, mean=(0.5,) * 3, std=(0.25,) * 3)


def small_network() -> nn.Module:
    """Return a network that knows nothing of us, of three convolutions: its step takes some 10 ms."""
    stages = (conv_norm_relu(3, 8), conv_norm_relu(8, 16, stride=2), conv_norm_relu(16, 32, stride=2))
    return nn.Sequential(*stages, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))


def pixels(count: int) -> Examples:
    """Return random images of the size of CIFAR's."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (count, 3, 32, 32), generator=generator, dtype=torch.uint8)
    labels = torch.randint(0, 10, (count,), generator=generator)
    return Examples(images, labels, torch.arange(count))


def random_data(count: int) -> DataSet:
    """Return a data set of random pixels, without a validation part."""
    examples = pixels(count)
    empty = examples.subset(torch.arange(0))
    classes = tuple(map(str, range(10)))
    return DataSet("random pixels", examples, empty, examples, classes, (0.5,) * 3, (0.25,) * 3)


def random_batch(side: int = 32, classes: int = 10) -> tuple[Tensor, Tensor]:
    """Return one batch of random pixels and labels."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(BATCH, 3, side, side, generator=generator)
    return x, torch.randint(0, classes, (BATCH,), generator=generator)


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    """Return the optimizer of the paper's recipe."""
    return torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4)


def training(
    model: nn.Module,
    loss: Loss,
    *,
    steps: int,
    batch: tuple[Tensor, Tensor] | None = None,
    optimizer: torch.optim.Optimizer | None = None,
) -> Work:
    """Return `steps` training steps of `model` on one batch, by default of the size of CIFAR-10's."""
    if optimizer is None:
        optimizer = sgd(model)
    x, y = batch or random_batch()

    def run() -> None:
        for _ in range(steps):
            optimizer.zero_grad()
            loss(model, x, y).backward()
            optimizer.step()

    return run


def peak_memory() -> float:
    """Return the peak of this process so far in MiB; not ru_maxrss, which a child inherits from its parent."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    (found,) = re.findall(r"VmHWM:\s+(\d+) kB", status)
    return int(found) / 1024
