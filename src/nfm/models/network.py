"""What all networks share: pixels in, normalisation first, named stages, a head; nothing of the method."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from nfm.models.initialisation import Law, convolutional_law
from nfm.models.task import Task


class Normalise(nn.Module):
    """Subtract the mean of each channel (dim 1), divide by its deviation; the identity without them."""

    mean: Tensor | None
    std: Tensor | None

    def __init__(self, mean: Sequence[float] | None = None, std: Sequence[float] | None = None) -> None:
        super().__init__()
        self.register_buffer("mean", None if mean is None else torch.tensor(mean, dtype=torch.float32))
        self.register_buffer("std", None if std is None else torch.tensor(std, dtype=torch.float32))

    def forward(self, x: Tensor) -> Tensor:
        if self.mean is None or self.std is None:
            return x
        shape = (-1,) + (1,) * (x.ndim - 2)  # (C, 1, 1) for images, (C,) for vectors
        return (x - self.mean.view(shape)) / self.std.view(shape)


class Network(nn.Module):
    """A classifier of [0, 1] pixels whose first child is its own normalisation.

    `default_sites` are the layers of its family where features are mixed unless told otherwise; the site
    `"input"` is the output of the module `input_site`: the network's input in the network's own units.
    """

    default_sites: tuple[str, ...] = ("input",)
    input_site: str = "normalise"
    initial_law: ClassVar[Law] = staticmethod(convolutional_law)

    def __init__(self, task: Task) -> None:
        super().__init__()
        self.normalise = Normalise(task.mean, task.std)


class ConvNetwork(Network):
    """normalise, stem, stage1 ... stageN, final, global average pooling, head."""

    def __init__(
        self,
        task: Task,
        *,
        stem: nn.Module,
        stages: Sequence[nn.Module],
        features: int,
        final: nn.Module | None = None,
    ) -> None:
        super().__init__(task)
        self.stem = stem
        self.stage_names = tuple(f"stage{number}" for number in range(1, len(stages) + 1))
        for name, stage in zip(self.stage_names, stages, strict=True):
            self.add_module(name, stage)
        self.final = nn.Identity() if final is None else final
        self.head = nn.Linear(features, task.num_classes)

    def forward(self, x: Tensor) -> Tensor:
        h = self.stem(self.normalise(x))
        for name in self.stage_names:
            h = getattr(self, name)(h)
        return self.head(self.final(h).mean((2, 3)))
