"""Networks that others trained and published: `timm:NAME` and `torchvision:NAME`, with their own normalisation."""

from __future__ import annotations

import importlib
from typing import Any

from torch import nn

from nfm.errors import EnvironmentProblem, UsageError, did_you_mean, need
from nfm.models.task import Task
from nfm.models.third_party import ThirdParty
from nfm.models.torchvision_compat import import_torchvision


def published(name: str, task: Task) -> nn.Module:
    """Return the network `name` with its published weights and its own head, behind its own normalisation."""
    prefix, _, rest = name.partition(":")
    libraries = {"timm": _from_timm, "torchvision": _from_torchvision}
    if prefix not in libraries:
        raise UsageError(
            f"{name}: published weights are known of: {', '.join(libraries)}{did_you_mean(prefix, libraries)}"
        )
    import_torchvision(name)
    net, mean, std = libraries[prefix](rest)
    return ThirdParty(Task(task.num_classes, task.in_channels, task.image_size, mean, std), net).eval()


def _from_timm(name: str) -> tuple[nn.Module, Any, Any]:
    try:
        timm = importlib.import_module("timm")
    except (ImportError, RuntimeError) as error:
        raise need("timm", "zoo", f"timm:{name}", error) from error
    net = _fetch(f"timm:{name}", lambda: timm.create_model(name, pretrained=True))
    return net, net.pretrained_cfg["mean"], net.pretrained_cfg["std"]


def _from_torchvision(name: str) -> tuple[nn.Module, Any, Any]:
    models = importlib.import_module("torchvision.models")
    where = f"torchvision:{name}"
    weights = _fetch(where, lambda: models.get_model_weights(name).DEFAULT)
    transform = weights.transforms()
    return _fetch(where, lambda: models.get_model(name, weights=weights)), transform.mean, transform.std


def _fetch(where: str, work: Any) -> Any:
    try:
        return work()
    except OSError as error:  # no network, no disk: URLError and its like are OSErrors
        raise EnvironmentProblem(f"{where}: cannot fetch the published weights: {error}") from error
    except (RuntimeError, ValueError, KeyError) as error:
        raise UsageError(f"{where}: {error}") from error
