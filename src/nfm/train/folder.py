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

from nfm.errors import ConfigError, EnvironmentProblem, UsageError
from nfm.results import Row, append_rows, write_atomically

IDENTITY = "run.json"
ROWS = "rows.jsonl"
TIMES = "times.jsonl"
CHECKPOINTS = "checkpoints"
BEST = "best"
RECIPE = "recipe"  # of the identity: what the run was made from, kept and not compared


def check_name(path: Path) -> Path:
    """Refuse a folder whose last part is no plain name."""
    name = path.name
    if (
        not name
        or name in (".", "..")
        or len(name.encode()) > 200
        or name.startswith("-")
        or not name.isprintable()
    ):
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
        if self.path.exists() and not self.path.is_dir():
            raise EnvironmentProblem(f"out: expected a folder, {self.path} is a file")
        if self.started and not overwrite:
            self._compare(identity)
            if not resume:
                raise UsageError(
                    f"out: {self.path} holds a run already; --resume auto goes on with it, --overwrite "
                    "starts anew"
                )
        self._take_lock()
        if overwrite:
            self._clear()
        if not self.started:
            write_atomically(self.path / IDENTITY, json.dumps(identity, indent=1, sort_keys=True).encode())

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
        os.truncate(self._lock, 0)
        os.write(self._lock, f"process {os.getpid()} on {socket.gethostname()}\n".encode())

    def _clear(self) -> None:
        for file in (self.path / IDENTITY, self.rows, self.times):
            file.unlink(missing_ok=True)
        shutil.rmtree(self.checkpoints, ignore_errors=True)

    def _compare(self, identity: Mapping[str, Any]) -> None:
        before, now = _flat(self.identity()), _flat(json.loads(json.dumps(identity)))
        changed = [
            f"{key}: was {before.get(key)!r}, now {now.get(key)!r}"
            for key in sorted(before.keys() | now.keys())
            if before.get(key) != now.get(key) and not key.startswith(f"{RECIPE}.")
        ]
        if changed:
            raise ConfigError(
                f"out: {self.path} holds another run; its settings differ:\n  "
                + "\n  ".join(changed)
                + "\nuse the same settings, another --out, or --overwrite"
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
        if size == 0 and not self.rows.exists():
            return
        os.truncate(self.rows, size)

    def close(self) -> None:
        """Let go of the folder."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _flat(table: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Return the values of nested tables by dotted key."""
    flat: dict[str, Any] = {}
    for key, value in table.items():
        flat |= _flat(value, f"{above}{key}.") if isinstance(value, dict) else {f"{above}{key}": value}
    return flat


def read_identity(path: Path) -> dict[str, Any]:
    """Return what the run in the folder `path` is."""
    try:
        return json.loads((path / IDENTITY).read_text())
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: expected the folder of a run, got {error}") from None
