"""Read the CIFAR-10 ResNets of Y. Idelbayev (github.com/akamaster/pytorch_resnet_cifar10, BSD-2)."""

from __future__ import annotations

import pickle
import re
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from nfm.errors import CheckpointError, UsageError
from nfm.models.building import build
from nfm.models.network import Network

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)

RENAMED = (
    (r"^module\.", ""),
    (r"^conv1\.", "stem.0."),
    (r"^bn1\.", "stem.1."),
    (r"^layer(\d)\.", r"stage\1."),
    (r"\.bn(\d)\.", r".norm\1."),
    (r"^linear\.", "head."),
)


def load_cifar_resnet(path: Path | str) -> Network:
    """Return the network of a published file, with the normalisation it was trained with (ImageNet's).

    The file says the depth: 20, 32, 44 or 56.
    """
    state = convert_state_dict(_read(path))
    blocks = len({key for key in state if re.fullmatch(r"stage1\.\d+\.conv1\.weight", key)})
    try:
        model = build(f"cifar_resnet{6 * blocks + 2}", num_classes=10, mean=IMAGENET_MEAN, std=IMAGENET_STD)
        model.load_state_dict({**model.normalise.state_dict(prefix="normalise."), **state})
    except (UsageError, RuntimeError) as error:
        raise CheckpointError(
            f"{path}: expected a published CIFAR-10 ResNet-20, 32, 44 or 56; {error}"
        ) from error
    return model


def convert_state_dict(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return `state` under our names.

    >>> list(convert_state_dict({"module.layer1.0.bn2.weight": torch.ones(16)}))
    ['stage1.0.norm2.weight']
    """
    return {_rename(key): value for key, value in state.items()}


def _rename(key: str) -> str:
    for pattern, replacement in RENAMED:
        key = re.sub(pattern, replacement, key)
    return key


def _read(path: Path | str) -> Mapping[str, Tensor]:
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, OSError, EOFError, RuntimeError) as error:
        raise CheckpointError(f"{path}: expected a file of PyTorch weights; {error}") from error
    if not isinstance(content, dict) or not isinstance(content.get("state_dict"), Mapping):
        raise CheckpointError(
            f"{path}: expected a dictionary with 'state_dict', got {type(content).__name__}"
        )
    return content["state_dict"]
