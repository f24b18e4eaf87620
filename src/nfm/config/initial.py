"""Weights to begin with: a run's, a checkpoint's, or a third party's, under a head that may be new."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from nfm.errors import CheckpointError
from nfm.models import find_head
from nfm.train import checkpoint
from nfm.train.folder import BEST, CHECKPOINTS
from nfm.train.state import load_weights

_WRAPPERS = ("module.", "_orig_mod.", "model.")


def take_weights(model: nn.Module, source: str) -> None:
    """Load the weights of `source` into `model`; a head of other classes stays new."""
    weights = read_weights(Path(source))
    own = model.state_dict()
    head = find_head(model)
    for name, value in own.items():
        if name.startswith(f"{head}.") and (name not in weights or weights[name].shape != value.shape):
            weights[name] = value
    load_weights(model, weights, source)


def read_weights(path: Path) -> dict[str, Tensor]:
    """Return the weights of a run folder, one of our checkpoints, a safetensors file or a torch file.

    A torch file is read with `weights_only`: one that is a pickled network is refused, never run.
    """
    if path.is_dir():
        return _of_run(path)
    if path.suffix in (".json", ".safetensors") and path.with_suffix(".json").exists():
        return _stripped(checkpoint.load(path.with_suffix(""))[0])
    if not path.exists():
        raise CheckpointError(f"no file or run {path}; expected a run folder, a .safetensors or a .pt file")
    try:
        loaded = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many kinds for a bad file
        raise CheckpointError(
            f"{path}: expected weights that load without running code, got {type(error).__name__}: "
            f"{str(error).splitlines()[0]}; save model.state_dict() instead of the whole network"
        ) from None
    content = loaded.get("state_dict", loaded) if isinstance(loaded, dict) else loaded
    if not isinstance(content, dict) or not all(isinstance(value, Tensor) for value in content.values()):
        raise CheckpointError(f"{path}: expected a state dict of tensors, got {type(content).__name__}")
    return _stripped(content)


def _of_run(path: Path) -> dict[str, Tensor]:
    """Return the best weights of a run by validation, or the last ones."""
    folder = path / CHECKPOINTS
    if (folder / f"{BEST}.json").exists():
        return checkpoint.load(folder / BEST)[0]
    for newest, problem in checkpoint.newest(folder):
        if problem is None:
            return _stripped(checkpoint.load(newest)[0])
    raise CheckpointError(f"{path}: expected the folder of a run with a whole checkpoint, found none")


def _stripped(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the network's own tensors, without the prefixes of wrappers and of our checkpoints."""
    if any(name.startswith("average.") for name in tensors):
        return {
            name.removeprefix("average."): v for name, v in tensors.items() if name.startswith("average.")
        }
    kept = {name: value for name, value in tensors.items() if not name.startswith("optimizer.")}
    for prefix in _WRAPPERS:
        if kept and all(name.startswith(prefix) for name in kept):
            kept = {name.removeprefix(prefix): value for name, value in kept.items()}
    return kept
