"""Weights to begin with: a run's, a checkpoint's, or a third party's, under a head that may be new."""

from __future__ import annotations

import warnings
from collections.abc import Collection
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor, nn

from nfm.errors import CheckpointError, UsageError
from nfm.models import find_head
from nfm.train import checkpoint
from nfm.train.folder import CHECKPOINTS
from nfm.train.state import load_weights

_WRAPPERS = ("module.", "_orig_mod.", "model.")  # of DDP, torch.compile, Lightning


_PUBLISHED: dict[str, dict[str, Any]] = {"timm": {"pretrained": True}, "torchvision": {"weights": "DEFAULT"}}


def published_options(source: str, model: str) -> dict[str, Any]:
    """Return the options that give `model` its published weights if `source` asks for them, else nothing."""
    prefix, colon, _ = source.partition(":")
    if not colon or prefix not in _PUBLISHED:
        return {}
    if source != model:
        raise UsageError(
            f"init_from: {source!r} has weights for itself alone; expected --model {source}, got {model!r}"
        )
    return _PUBLISHED[prefix]


def take_weights(model: nn.Module, source: str) -> None:
    """Load the weights of `source` into `model`; a head of other classes stays new."""
    own = model.state_dict()
    weights = unwrapped(read_weights(Path(source)), own)
    head = find_head(model)
    for name, value in own.items():
        if name.startswith(f"{head}.") and (name not in weights or weights[name].shape != value.shape):
            weights[name] = value
    load_weights(model, weights, source)


def read_weights(path: Path) -> dict[str, Tensor]:
    """Return the weights of a run folder, one of our checkpoints, a safetensors file or a torch file.

    A torch file is read with `weights_only`: one that is a pickled network is refused, never run.
    """
    try:
        if path.is_dir():
            return _of_run(path)
        if path.suffix in (".json", ".safetensors") and path.with_suffix(".json").exists():
            return _of_checkpoint(path.with_suffix(""))
        if path.suffix == ".safetensors":
            return checkpoint.parse_tensors(path.read_bytes(), path)
        with path.open("rb") as file:
            return _of_torch(file, path)
    except OSError as error:
        raise CheckpointError(
            f"cannot read {path}: {error.strerror}; expected a run folder, a .safetensors or a .pt file"
        ) from None


def _of_torch(file: BinaryIO, path: Path) -> dict[str, Tensor]:
    try:
        loaded = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many kinds for a bad file
        reason = (str(error).splitlines() or [""])[0]
        raise CheckpointError(
            f"{path}: expected weights that load without running code, got {type(error).__name__}: "
            f"{reason}; save model.state_dict() instead of the whole network"
        ) from None
    content = loaded.get("state_dict", loaded) if isinstance(loaded, dict) else loaded
    if not isinstance(content, dict) or not all(
        isinstance(name, str) and isinstance(value, Tensor) for name, value in content.items()
    ):
        raise CheckpointError(f"{path}: expected a state dict of tensors, got {type(content).__name__}")
    return dict(content)


def _of_run(path: Path) -> dict[str, Tensor]:
    """Return the best weights of a run by validation, or the last ones."""
    folder = path / CHECKPOINTS
    for kind in (checkpoint.BEST, checkpoint.LAST):
        found = checkpoint.found_in(folder, kind)
        if found:
            return _of_checkpoint(found[0])
    raise CheckpointError(f"{path}: expected the folder of a run with a checkpoint, found none")


def _of_checkpoint(path: Path) -> dict[str, Tensor]:
    """Return the network's own tensors of one of our checkpoints: the average where there is one."""
    tensors = checkpoint.load(path)[0]
    if path.name.startswith(checkpoint.BEST):
        return tensors
    prefix = "average." if any(name.startswith("average.") for name in tensors) else "model."
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def unwrapped(weights: dict[str, Tensor], own: Collection[str]) -> dict[str, Tensor]:
    """Return `weights` without the prefixes of wrappers, told by a warning, unless `own` names begin so."""
    foreign = [prefix for prefix in _WRAPPERS if not all(name.startswith(prefix) for name in own)]
    taken_off = ""
    while prefix := next((p for p in foreign if weights and all(n.startswith(p) for n in weights)), ""):
        weights = {name.removeprefix(prefix): value for name, value in weights.items()}
        taken_off += prefix
    if taken_off:
        warnings.warn(f"took the wrapper's prefix {taken_off!r} off the names of the weights", stacklevel=2)
    return weights
