"""What a run is: all that decides its result to the byte, as a table whose differences can be told."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import torch
from torch import nn

from nfm.core.kernel import STREAMS, kernel_in_use
from nfm.data.examples import DataSet
from nfm.method.feature_mixup import NoisyFeatureMixup
from nfm.train.optim import Optimizer
from nfm.train.ranks import Ranks
from nfm.train.schedule import Schedule
from nfm.train.settings import Settings

IRRELEVANT = ("workers", "checkpoint_seconds")  # settings that never change a result


def identity_of(
    model: nn.Module, method: Any, data: DataSet, *, settings: Settings,
    optimizer: Optimizer | torch.optim.Optimizer, schedule: Schedule, augment: Any, criterion: Any,
    ranks: Ranks,
) -> dict[str, Any]:  # fmt: skip
    """Return what decides the result, apart from the first weights and the versions of things."""
    shapes = [(name, list(value.shape)) for name, value in model.state_dict().items()]
    frozen = [name for name, parameter in model.named_parameters() if not parameter.requires_grad]
    kernel = kernel_in_use() if ranks.device.type == "cpu" else "torch"
    labelled = data.train.ids.numpy().tobytes() + data.train.labels.numpy().tobytes()
    identity = {
        "model": {"class": type(model).__name__, "shapes": _digest(json.dumps(shapes)), "frozen": frozen},
        "method": _of_method(method), "data": f"{data.name} {_digest(labelled)}",
        "optimizer": asdict(optimizer) if isinstance(optimizer, Optimizer) else told(optimizer),
        "schedule": asdict(schedule), "augment": told(augment), "criterion": told(criterion),
        "settings": {name: value for name, value in asdict(settings).items() if name not in IRRELEVANT},
        "world": ranks.world, "device": ranks.device.type,
        "kernel": kernel, "stream": STREAMS[kernel],
    }  # fmt: skip
    return json.loads(json.dumps(identity))  # as it will be read back: lists for tuples


def key_of(identity: Mapping[str, Any]) -> str:
    """Return a short name of `identity`, by which a checkpoint knows its run."""
    return _digest(json.dumps(identity, sort_keys=True))


def told(thing: Any) -> str:
    """Return `repr(thing)` without the places in memory, which differ in every process."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(thing))


def _of_method(method: Any) -> Any:
    if type(method) is not NoisyFeatureMixup:
        return told(method)
    names = ("sites", "inputs", "alpha", "beta", "weights", "dominant", "seed")
    return {name: getattr(method, name) for name in names} | {"noise": asdict(method.noise)}


def _digest(content: str | bytes) -> str:
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()[:16]
