"""Rows: what every measurement writes and every picture reads. Append-only JSONL with provenance."""

from __future__ import annotations

import functools
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from nfm.errors import DataError

Row = dict[str, Any]


def to_line(row: Mapping[str, Any]) -> str:
    """Return `row` as one line of JSON: sorted keys, no NaN (it is not JSON)."""
    return json.dumps(row, sort_keys=True, allow_nan=False, ensure_ascii=False) + "\n"


def append_rows(path: Path | str, rows: Iterable[Mapping[str, Any]]) -> None:
    """Append `rows` to the JSONL file `path` and make them durable."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = "".join(to_line(row) for row in rows)
    with path.open("a", encoding="utf-8") as file:
        file.write(lines)
        file.flush()
        os.fsync(file.fileno())


def read_rows(path: Path | str) -> Iterator[Row]:
    """Yield the rows of a JSONL file; a line that is no JSON object is refused by its number."""
    with Path(path).open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                row = json.loads(line.decode("utf-8"))
            except (ValueError, RecursionError) as error:
                raise DataError(f"{path}, line {number}: expected a JSON object, got {error}") from None
            if not isinstance(row, dict):
                raise DataError(f"{path}, line {number}: expected a JSON object, got {type(row).__name__}")
            yield row


def read_object(path: Path, what: str) -> Row:
    """Return the JSON object in `path`, or say that `what` was expected there."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path}: expected {what}, got {error}") from None
    if not isinstance(content, dict):
        raise DataError(f"{path}: expected {what}, got {type(content).__name__}")
    return content


def write_atomically(path: Path | str, content: bytes) -> None:
    """Write `content` so that a reader sees the old file or the new one, never a torn one."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with draft.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def write_between(path: Path, begin: str, end: str, text: str) -> None:
    """Replace what stands between two marks in a page, each on a line of its own; refuse a page without them."""
    before, found, rest = path.read_text(encoding="utf-8").partition(begin)
    if not found or end not in rest:  # all behind the first mark would be lost
        raise DataError(f"{path}: expected {begin!r} and after it {end!r}, got not both; put them back")
    write_atomically(path, f"{before}{begin}\n{text}\n{end}{rest.partition(end)[2]}".encode())


def provenance() -> Row:
    """Return what a result depends on beside its configuration: code, versions, machine."""
    import numpy
    import torch

    return {
        "nfm": _version("noisy-feature-mixup"),
        "commit": _commit(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "threads": torch.get_num_threads(),
        "machine": platform.machine(),
        "platform": sys.platform,
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


@functools.cache  # the code is loaded once
def _commit() -> str | None:
    """Return the commit of the source tree, with ``+`` where code or recipes have uncommitted changes.

    Rows are kept in the tree as well, and a run that writes them changes nothing of what made them.
    """

    def git(*words: str) -> str:
        told = subprocess.run(
            ["git", *words], cwd=Path(__file__).parent, capture_output=True, text=True, timeout=5, check=True
        )
        return told.stdout.strip()

    try:
        commit = git("describe", "--always", "--abbrev=12", "--exclude=*")
        changed = git("status", "--porcelain", "--", ":/src", ":/recipes", ":/pyproject.toml")
    except (OSError, subprocess.SubprocessError):
        return None
    return (f"{commit}+" if changed else commit) or None
