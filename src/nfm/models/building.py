"""From a name to a network, the same bytes for the same seed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from nfm.models.catalogue import MODELS, check_options
from nfm.models.initialisation import initialise
from nfm.models.network import Network
from nfm.models.task import Task
from nfm.models.third_party import SOURCES, ThirdParty
from nfm.randomness import check_seed, fold


def build(
    name: str,
    *,
    num_classes: int,
    in_channels: int = 3,
    image_size: int | None = 32,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    seed: int = 0,
    **options: Any,
) -> Network:
    """Return the network `name` on the CPU, its weights drawn from `seed`.

    `name` is one of MODELS, or `timm:NAME`, `torchvision:NAME`, `module:PACKAGE.MODULE:FACTORY`.
    `image_size=None` means vectors of `in_channels` features. `mean` and `std` become the network's first
    layer. `options` are the network's own (`known_options`). The global generator is left as it was.

    >>> build("mlp", num_classes=2, in_channels=2, image_size=None, units=16).default_sites
    ('input', 'hidden1', 'hidden2', 'hidden3')
    """
    task = Task(num_classes, in_channels, image_size, mean, std)
    key = fold(check_seed(seed), "construct")
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.default_generator.manual_seed(key)  # third-party networks draw from it, ours are drawn below
        prefix, colon, rest = name.partition(":")
        if colon:
            return ThirdParty(task, SOURCES[prefix](rest, task, options, seed))
        builder = MODELS[name]
        check_options(name, options)
        model = builder(task, **options)
    initialise(model, seed)
    return model
