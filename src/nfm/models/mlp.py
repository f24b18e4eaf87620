"""A fully connected ReLU network for vectors (and small images, flattened)."""

from __future__ import annotations

from itertools import pairwise

from torch import Tensor, nn

from nfm.models.catalogue import MODELS
from nfm.models.network import Network
from nfm.models.task import Task, check_count, check_rate


class MLP(Network):
    """`depth` linear layers (4 as in the paper's toy task): hidden1 ... hidden3 with ReLU, then head.

    `units` in each hidden layer are our choice: the paper does not say. `dropout` acts on each hidden
    activation, after the site.
    """

    def __init__(self, task: Task, *, units: int = 64, depth: int = 4, dropout: float = 0.0) -> None:
        super().__init__(task)
        pixels = 1 if task.image_size is None else task.image_size**2
        sizes = [
            task.in_channels * pixels,
            *[check_count("units", units)] * (check_count("depth", depth) - 1),
        ]
        self.hidden_names = tuple(f"hidden{number}" for number in range(1, depth))
        for name, (inputs, outputs) in zip(self.hidden_names, pairwise(sizes), strict=True):
            self.add_module(name, nn.Sequential(nn.Linear(inputs, outputs), nn.ReLU()))
        self.dropout = nn.Dropout(check_rate("dropout", dropout))
        self.head = nn.Linear(sizes[-1], task.num_classes)
        self.default_sites = ("input", *self.hidden_names)

    def forward(self, x: Tensor) -> Tensor:
        h = self.normalise(x).flatten(1)
        for name in self.hidden_names:
            h = self.dropout(getattr(self, name)(h))
        return self.head(h)


MODELS.add("mlp", MLP)
