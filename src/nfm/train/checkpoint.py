"""Checkpoints: inert (safetensors), atomic, checksummed; the last two are kept, and the best.

A checkpoint is a pair of files, ``NAME.safetensors`` and ``NAME.json``. The second is written after the first
and holds everything that is no tensor and the SHA-256 of both, so a pair is whole or is no checkpoint. A name
holds its step, so that a pair is never replaced by another one half by half.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from nfm.errors import CheckpointError, need
from nfm.results import write_atomically
from nfm.train.disk import writing

FORMAT = 1
LAST, BEST = "step", "best"
KEPT = {LAST: 2, BEST: 1}
_MANIFEST = {"format": int, "sha256": str, "size": int, "facts": dict}


def _safetensors() -> Any:
    try:
        import safetensors.torch
    except (ImportError, RuntimeError) as error:
        raise need("safetensors", "train", "a checkpoint", error) from error
    return safetensors.torch


def save(path: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
    """Write the checkpoint `path` (a name without ending)."""
    content = _safetensors().save(_apart(tensors))
    manifest = {"format": FORMAT, "sha256": _digest(content, facts), "size": len(content), "facts": facts}
    with writing(f"a checkpoint of {len(content):,} bytes,", path):
        write_atomically(path.with_suffix(".safetensors"), content)
        write_atomically(path.with_suffix(".json"), _text(manifest))


def _apart(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors on the CPU; those that share memory, which the format refuses, as copies."""
    apart: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, value in tensors.items():
        here = value.detach().cpu().contiguous()
        place = here.untyped_storage().data_ptr()
        apart[name] = here.clone() if place in seen else here
        seen.add(place)
    return apart


def _text(table: Mapping[str, Any]) -> bytes:
    return json.dumps(table, sort_keys=True, allow_nan=False).encode()


def _digest(content: bytes, facts: Mapping[str, Any]) -> str:
    digest = hashlib.sha256(content)
    digest.update(_text(facts))
    return digest.hexdigest()


def load(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors and the facts of the checkpoint `path`; refuse it if one bit is not as written."""
    content, facts = _verified(path)
    return parse_tensors(content, path.with_suffix(".safetensors")), facts


def _verified(path: Path) -> tuple[bytes, dict[str, Any]]:
    manifest = read_manifest(path)
    file = path.with_suffix(".safetensors")
    content = _read(file)
    digest = _digest(content, manifest["facts"])
    if len(content) != manifest["size"] or digest != manifest["sha256"]:
        raise CheckpointError(
            f"{file}: checksum: expected {manifest['size']:,} bytes with SHA-256 "
            f"{manifest['sha256'][:12]}..., got {len(content):,} with {digest[:12]}...; it or its .json is damaged"
        )
    return content, manifest["facts"]


def parse_tensors(content: bytes, file: Path) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file."""
    library = _safetensors()
    try:
        return library.load(content)
    except Exception as error:  # the library has an error class of its own, and lets others through
        raise CheckpointError(f"{file}: expected tensors in the safetensors format, got {error}") from None


def read_manifest(path: Path) -> dict[str, Any]:
    """Return the manifest of the checkpoint `path`."""
    file = path.with_suffix(".json")
    try:
        written = _read(file)
        manifest = json.loads(written)
        kinds = {name: type(value) for name, value in manifest.items()}
        same = _text(manifest) == written  # a number can be damaged in digits that make no difference
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise CheckpointError(f"{file}: expected the manifest of a checkpoint, got {error!r}") from None
    if kinds != _MANIFEST or not same:
        raise CheckpointError(
            f"{file}: expected the manifest of a checkpoint; the file is damaged or foreign"
        )
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


def path_of(folder: Path, kind: str, step: int) -> Path:
    """Return the name of the checkpoint of `kind` after `step` steps."""
    return folder / f"{kind}-{step:010d}"


def found_in(folder: Path, kind: str) -> list[Path]:
    """Return the checkpoints of `kind` in a folder, the newest first, whole or not."""
    return sorted((file.with_suffix("") for file in folder.glob(f"{kind}-*.json")), reverse=True)


def set_aside(path: Path) -> None:
    """Rename a damaged checkpoint so that it is neither counted nor read again, and nothing of it is lost."""
    with writing("the name of", path):
        for file in (path.with_suffix(".json"), path.with_suffix(".safetensors")):
            if file.exists():
                file.rename(file.with_name(f"damaged-{file.name}"))


def prune(folder: Path) -> None:
    """Delete all but the newest checkpoints, once the newest is seen to be whole; sweep unfinished drafts."""
    for draft in folder.glob(".*.tmp"):
        draft.unlink(missing_ok=True)
    for kind, kept in KEPT.items():
        paths = found_in(folder, kind)
        if len(paths) > kept:
            _verified(paths[0])
        for path in paths[kept:]:
            path.with_suffix(".json").unlink(missing_ok=True)
        names = {path.name for path in paths[:kept]}
        for file in folder.glob(f"{kind}-*.safetensors"):
            if file.stem not in names:
                file.unlink(missing_ok=True)
