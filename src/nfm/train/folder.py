"""The folder of one run: a lock, the run's identity, rows, checkpoints."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nfm.core.kernel import VARIABLE
from nfm.differing import differences
from nfm.errors import CheckpointError, ConfigError, EnvironmentProblem, UsageError
from nfm.results import Row, append_rows, write_atomically
from nfm.train.disk import writing

IDENTITY = "run.json"
ROWS = "rows.jsonl"
TIMES = "times.jsonl"
CHECKPOINTS = "checkpoints"
RECIPE = "recipe"  # of the identity: what the run was made from; most of it is compared by other keys
_COMPARED = f"{RECIPE}.config.model."  # all but this, which no other key tells


def check_name(path: Path) -> Path:
    """Refuse a folder whose last part is no plain name."""
    name = path.name
    plain = name not in ("", ".", "..") and not name.startswith("-") and name.isprintable()
    if not plain or len(name.encode()) > 200 or "\0" in str(path):
        raise UsageError(
            "out: expected a folder with a printable name of at most 200 bytes, not starting with '-', "
            f"got {name!r}"
        )
    return path


class RunFolder:
    """One run's folder, held by one process at a time."""

    def __init__(self, path: Path | str) -> None:
        self.path = check_name(Path(path))
        self.rows, self.times = self.path / ROWS, self.path / TIMES
        self.checkpoints = self.path / CHECKPOINTS
        self._lock: int | None = None

    @property
    def started(self) -> bool:
        """Tell whether a run was begun here."""
        return (self.path / IDENTITY).exists()

    def open(self, identity: Mapping[str, Any], *, resume: bool, overwrite: bool) -> None:
        """Lock the folder for the run called `identity`; refuse another run's folder, or one in use."""
        self._check_place()
        if self.started and not overwrite:
            self._compare(identity)
            if not resume:
                raise UsageError(
                    f"out: {self.path} holds a run already; --resume auto goes on with it, --overwrite "
                    "starts anew"
                )
        self._take_lock()
        with writing("the run", self.path):
            if overwrite and self.started:  # never clear a folder that is no run's
                self._clear()
            for draft in self.path.glob(".*.tmp"):
                draft.unlink(missing_ok=True)
            if not self.started:
                text = json.dumps(identity, indent=1, sort_keys=True)
                write_atomically(self.path / IDENTITY, text.encode())

    def _check_place(self) -> None:
        try:
            is_file = self.path.exists() and not self.path.is_dir()
        except OSError as error:
            raise EnvironmentProblem(f"out: cannot use {self.path}: {error.strerror}") from None
        if is_file:
            raise EnvironmentProblem(f"out: expected a folder, {self.path} is a file")

    def _take_lock(self) -> None:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(self.path / ".lock", os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise EnvironmentProblem(f"out: cannot write to {self.path}: {error.strerror}") from None
        try:
            fcntl.flock(
                self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB
            )  # let go of by the kernel, even after kill -9
        except OSError:
            holder = (self.path / ".lock").read_text().strip() or "another process"
            self.close()
            raise EnvironmentProblem(
                f"out: {self.path} is in use by {holder}; wait for it, or use another --out"
            ) from None
        with writing("the lock of", self.path):
            os.truncate(self._lock, 0)
            os.write(self._lock, f"process {os.getpid()} on {socket.gethostname()}\n".encode())

    def _clear(self) -> None:
        for file in (self.path / IDENTITY, self.rows, self.times):
            file.unlink(missing_ok=True)
        shutil.rmtree(self.checkpoints, ignore_errors=True)

    def _compare(self, identity: Mapping[str, Any]) -> None:
        now = json.loads(json.dumps(identity))
        changed = [
            f"{key}: was {before!r}, now {after!r}"
            for key, (before, after) in differences(self.identity(), now).items()
            if key.startswith(_COMPARED) or key.partition(".")[0] != RECIPE
        ]
        if changed:
            raise ConfigError(
                f"out: {self.path} holds another run; its settings differ:\n  "
                + "\n  ".join(changed)
                + "\nuse the same settings, another --out, or --overwrite"
                + _how_to_choose(self.identity().get("kernel"), now.get("kernel"))
            )

    def identity(self) -> dict[str, Any]:
        """Return what the run in this folder is."""
        return read_identity(self.path)

    def write(self, rows: list[Row]) -> None:
        """Append rows that a resumed run repeats to the byte."""
        append_rows(self.rows, rows)

    def write_times(self, rows: list[Row]) -> None:
        """Append rows that depend on the clock."""
        append_rows(self.times, rows)

    def cut_rows(self, size: int) -> None:
        """Forget the rows after byte `size`: they are made again."""
        there = self.rows.stat().st_size if self.rows.exists() else 0
        if there < size:
            raise CheckpointError(
                f"{self.rows}: expected at least the {size:,} bytes that the checkpoint tells of, got {there:,}; "
                "put the file back, or start anew with --overwrite"
            )
        if there > size:
            with writing("the rows", self.rows):
                os.truncate(self.rows, size)

    def close(self) -> None:
        """Let go of the folder."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _how_to_choose(before: Any, now: Any) -> str:
    """Return how to go on with the kernel of a run: it is chosen outside of the settings."""
    return (
        "" if before == now or before is None else f"; {VARIABLE}={before} goes on with the run's own kernel"
    )


def read_identity(path: Path) -> dict[str, Any]:
    """Return what the run in the folder `path` is."""
    if path.is_dir() and not (path / IDENTITY).exists():
        runs = sorted(file.parent.name for file in path.glob(f"*/{IDENTITY}"))
        inside = f"; it holds runs: {', '.join(runs[:4])}{', ...' if len(runs) > 4 else ''}" if runs else ""
        raise UsageError(f"{path}: expected the folder of a run, got one without {IDENTITY}{inside}")
    try:
        identity = json.loads((path / IDENTITY).read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{path}: expected the folder of a run, got {error}") from None
    if not isinstance(identity, dict):
        raise UsageError(f"{path / IDENTITY}: expected a table, got {type(identity).__name__}")
    return identity
