"""Rows for other tools: CSV and TensorBoard events."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nfm.errors import need
from nfm.results import Row, write_atomically


def write_csv(rows: Sequence[Row], path: Path) -> None:
    """Write rows of one kind as CSV."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_atomically(path, text.getvalue().encode())


def tensorboard_writer() -> Any:
    """Return the class that writes TensorBoard events, or say how to get it."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except (ImportError, RuntimeError) as error:
        raise need("tensorboard", "track", "--tensorboard", error) from error
    return SummaryWriter


def write_tensorboard(rows: Sequence[Row], folder: Path) -> None:
    """Write every number of the rows as TensorBoard events, steps by step and epochs by epoch."""
    with tensorboard_writer()(str(folder)) as writer:
        for row in rows:
            place = row["step"] if row["kind"] == "step" else row["epoch"]
            for name, value in row.items():
                if isinstance(value, float):
                    writer.add_scalar(f"{row['kind']}/{name}", value, place)
