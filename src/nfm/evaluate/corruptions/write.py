"""Write corruptions in the layout of the published files, so that any CIFAR-like set gets its own -C."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterable
from pathlib import Path

import torch
from numpy.lib import format as npy_format
from torch import Tensor

from nfm.data.cifar_c_files import CORRUPTIONS, SEVERITIES
from nfm.data.examples import ExampleSet
from nfm.errors import DataError
from nfm.evaluate.corruptions.constants import choose_constants
from nfm.evaluate.corruptions.corruption import Corruption, corrupt
from nfm.results import Row, append_rows, provenance, write_atomically

BATCH = 500
ROWS = "generated.jsonl"


def write_cifar_c(
    examples: ExampleSet,
    folder: Path | str,
    families: Iterable[str] = CORRUPTIONS,
    *,
    seed: int = 0,
    constants: str = "auto",
) -> list[Row]:
    """Write FAMILY.npy for each family and labels.npy into `folder`, each file at once or not at all.

    Five severities of all images stand one after another: uint8 (5 n, H, W, C), labels uint8 (5 n,). For each
    file a row is returned and appended to generated.jsonl: it tells the source ("generated"), the
    constants, the seed, the MD5 and what the code ran on.
    """
    changes = [Corruption(family, constants) for family in families]
    labels = _labels(examples)
    common = {"seed": seed, "constants": choose_constants(constants, examples.shape[1:]), "n": len(examples)}
    rows = [_store(Path(folder) / "labels.npy", labels, common | {"source": "generated"})]
    for change in changes:
        images = _generate(examples, change, seed)
        row = common | {"family": change.family, "source": change.source}
        rows.append(_store(Path(folder) / f"{change.family}.npy", images, row))
    append_rows(Path(folder) / ROWS, rows)
    return rows


def _labels(examples: ExampleSet) -> Tensor:
    labels = examples.labels
    if labels.dtype != torch.int64 or not len(labels) or int(labels.max()) > 255 or int(labels.min()) < 0:
        raise DataError(
            "the published layout holds labels from 0 to 255 (uint8), one an image; "
            f"got {labels.dtype} {tuple(labels.shape)} up to {labels.max().item() if len(labels) else None}"
        )
    return labels.to(torch.uint8).repeat(len(SEVERITIES))


def _generate(examples: ExampleSet, change: Corruption, seed: int) -> Tensor:
    """Return uint8 (5 n, H, W, C), severity by severity."""
    parts = []
    for severity in SEVERITIES:
        for indices in torch.arange(len(examples)).split(BATCH):
            images = examples.fetch(indices)
            if images.dtype != torch.uint8:
                raise DataError(f"expected images of 8 bits (uint8), got {images.dtype}")
            ids = examples.ids[indices]
            made = corrupt(images, ids, change.family, severity, seed=seed, constants=change.constants)
            parts.append(made.permute(0, 2, 3, 1).contiguous())
    return torch.cat(parts)


def _store(path: Path, values: Tensor, row: Row) -> Row:
    """Write a .npy file as numpy.save does, and return its row."""
    file = io.BytesIO()
    npy_format.write_array(file, values.numpy(), version=(1, 0))
    content = file.getvalue()
    write_atomically(path, content)
    md5 = hashlib.md5(content, usedforsecurity=False).hexdigest()
    return {"kind": "corruption file", "file": path.name, "md5": md5} | row | provenance()
