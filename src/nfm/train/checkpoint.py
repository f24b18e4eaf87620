"""Checkpoints: inert (safetensors), atomic, checksummed; the last two are kept.

A checkpoint is a pair of files, ``NAME.safetensors`` and ``NAME.json``. The second is written after the first
and holds its SHA-256 and everything that is no tensor, so a pair is whole or is no checkpoint.
"""

from __future__ import annotations

import errno
import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from nfm.errors import CheckpointError, EnvironmentProblem, need
from nfm.results import write_atomically

FORMAT = 1
KEPT = 2
_STEP = "step-"


def _safetensors() -> Any:
    try:
        import safetensors.torch
    except (ImportError, RuntimeError) as error:
        raise need("safetensors", "train", "a checkpoint", error) from error
    return safetensors.torch


def save(path: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
    """Write the checkpoint `path` (a name without ending)."""
    # A copy of each: tensors that share memory are refused by the format.
    content = _safetensors().save(
        {name: value.detach().cpu().clone().contiguous() for name, value in tensors.items()}
    )
    manifest = {
        "format": FORMAT,
        "sha256": hashlib.sha256(content).hexdigest(),
        "size": len(content),
        "facts": facts,
    }
    text = json.dumps(manifest, sort_keys=True, allow_nan=False)
    try:
        write_atomically(path.with_suffix(".safetensors"), content)
        write_atomically(path.with_suffix(".json"), text.encode())
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EFBIG):
            raise
        free = shutil.disk_usage(path.parent).free if path.parent.exists() else 0
        raise EnvironmentProblem(
            f"cannot write checkpoint {path} ({len(content):,} bytes): {error.strerror}, {free:,} bytes "
            "free; the checkpoints before it are kept; make room and start again with --resume auto"
        ) from error


def load(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors and the facts of the checkpoint `path`; refuse it if one bit is not as written."""
    facts = read_manifest(path)
    content = _read(path.with_suffix(".safetensors"))
    digest = hashlib.sha256(content).hexdigest()
    if len(content) != facts["size"] or digest != facts["sha256"]:
        raise CheckpointError(
            f"{path.with_suffix('.safetensors')}: checksum: expected {facts['size']:,} bytes with SHA-256 "
            f"{facts['sha256'][:12]}..., got {len(content):,} with {digest[:12]}...; the file is damaged"
        )
    return _safetensors().load(content), facts["facts"]


def read_manifest(path: Path) -> dict[str, Any]:
    """Return the manifest of the checkpoint `path`."""
    file = path.with_suffix(".json")
    try:
        manifest = json.loads(_read(file))
        if set(manifest) != {"format", "sha256", "size", "facts"}:
            raise ValueError(f"keys {sorted(manifest)}")
    except (ValueError, TypeError) as error:
        raise CheckpointError(f"{file}: expected the manifest of a checkpoint, got {error}") from None
    if manifest["format"] != FORMAT:
        raise CheckpointError(
            f"{file}: expected checkpoint format {FORMAT}, got {manifest['format']!r}; "
            "it was written by another version of nfm"
        )
    return manifest


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise CheckpointError(f"cannot read {file}: {error.strerror}") from None


def step_path(folder: Path, step: int) -> Path:
    """Return the name of the checkpoint after `step` steps."""
    return folder / f"{_STEP}{step:010d}"


def steps_in(folder: Path) -> list[Path]:
    """Return the checkpoints of a folder, the newest first, whole or not."""
    return sorted((file.with_suffix("") for file in folder.glob(f"{_STEP}*.json")), reverse=True)


def newest(folder: Path) -> Iterator[tuple[Path, CheckpointError | None]]:
    """Yield the checkpoints of a folder from the newest on, each with what is wrong with it, if anything."""
    for path in steps_in(folder):
        try:
            load(path)
        except CheckpointError as error:
            yield path, error
        else:
            yield path, None


def prune(folder: Path) -> None:
    """Delete all but the newest checkpoints, once the newest is seen to be whole; sweep unfinished drafts."""
    for draft in folder.glob(".*.tmp"):
        draft.unlink(missing_ok=True)
    paths = steps_in(folder)
    if len(paths) > KEPT:
        load(paths[0])
    for path in paths[KEPT:]:
        path.with_suffix(".json").unlink(missing_ok=True)
    kept = {path.name for path in paths[:KEPT]}
    for file in folder.glob(f"{_STEP}*.safetensors"):
        if file.stem not in kept:
            file.unlink(missing_ok=True)
