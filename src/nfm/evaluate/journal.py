"""A folder of rows beside what was measured: `identity.json` or the like, and `rows.jsonl`.

Rows are added one by one and are durable at once; the half of a line that a killed process left is dropped. Only the
same measurement may go on in a folder.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from nfm.differing import differences
from nfm.errors import DataError, UsageError
from nfm.results import Row, append_rows, provenance, read_object, read_rows, to_line, write_atomically

ROWS = "rows.jsonl"
RUN = "run.json"  # of a trained run, whose rows are others
CLEARED = "cleared"  # alone in a head whose rows were cleared away: it keeps the folder known as ours

OUTPUT = (
    "output"  # of an identity: what a model told of a few examples, which other kernels round differently
)
ROUNDING = 1e-4  # of it


@dataclass(frozen=True)
class Journal:
    """The rows of one measurement; `kind` is what messages call it, `head` the file that tells what was measured.

    `keys` are what every identity of that kind has: a head without them is of something else. `columns` are what
    every row has, with the types they may be of.
    """

    path: Path
    head: str
    kind: str
    keys: tuple[str, ...] = ()
    columns: Mapping[str, tuple[type, ...]] = field(default_factory=dict)

    def start(self, identity: Row) -> None:
        """Go on with the rows of `identity`, or make the folder where there is none."""
        if (self.path / self.head).exists() and not self._is_cleared():
            self._mend()
            self.match(identity)
            return
        content = json.dumps(identity | {"provenance": provenance()}, indent=2, sort_keys=True)
        write_atomically(self.path / self.head, content.encode())

    def check_place(self) -> bool:
        """Tell whether the folder holds such a measurement; refuse one that holds something else."""
        if (self.path / RUN).exists():
            raise UsageError(f"{self.path} is a trained run; choose another directory for the {self.kind}")
        if (self.path / self.head).exists():
            missing = [key for key in self.keys if key not in self._about()]
            if missing and not self._is_cleared():
                raise UsageError(
                    f"{self.path / self.head} has contents other than those of our {self.kind} (no "
                    f"{', '.join(missing)}); choose another directory"
                )
            return True
        others = sorted(entry.name for entry in self.path.iterdir()) if self.path.is_dir() else []
        if shown := [name for name in others if not name.startswith(".")]:
            raise UsageError(
                f"{self.path} holds other files ({', '.join(shown[:3])}{' ...' if shown[3:] else ''}) and no "
                f"{self.kind}; choose another directory"
            )
        return False

    def clear(self, *patterns: str) -> None:
        """Remove the rows and the files of `patterns` beside them, and nothing else."""
        if not self.check_place():
            return
        write_atomically(self.path / self.head, json.dumps({CLEARED: self.kind}).encode())
        for file in [file for pattern in (ROWS, *patterns) for file in self.path.glob(pattern)]:
            file.unlink()

    def match(self, identity: Row) -> None:
        """Refuse the rows of another measurement, with the differences."""
        held = self.identity()
        pairs = [(key, held.get(key), identity.get(key)) for key in sorted(identity.keys() | held.keys())]
        wrong = [
            f"{name}: {there!r} there, {here!r} here"
            for key, *both in pairs
            if not _agree(key, *both)
            for name, (there, here) in differences(*({key: value} for value in both)).items()
        ]
        if wrong:
            raise UsageError(
                f"{self.path} holds another {self.kind} ({'; '.join(wrong)}); choose another directory"
            )

    def rows(self) -> Iterator[Row]:
        """Yield the rows, in the order they were measured; refuse what is no row of such a measurement."""
        file = self.path / ROWS
        for number, row in enumerate(read_rows(file) if file.exists() else (), start=1):
            wrong = [name for name, types in self.columns.items() if not isinstance(row.get(name), types)]
            if wrong:
                raise DataError(
                    f"{file}, line {number}: expected a row of our {self.kind}, got "
                    + ", ".join(f"{name} {row.get(name)!r}" for name in wrong)
                )
            yield row

    def add(self, row: Row) -> None:
        """Add a row for good."""
        append_rows(self.path / ROWS, [row])

    def rewrite(self, rows: list[Row]) -> None:
        """Replace all rows at once."""
        write_atomically(self.path / ROWS, "".join(map(to_line, rows)).encode())

    def identity(self) -> Row:
        """Return what was measured."""
        return {key: value for key, value in self._about().items() if key != "provenance"}

    def made_by(self) -> Row:
        """Return what the rows were made by: versions, commit, machine."""
        return self._about().get("provenance", {})

    def _is_cleared(self) -> bool:
        return self._about() == {CLEARED: self.kind}

    def _mend(self) -> None:
        """Drop the half of a last line that a killed process left; what it tells counts as not measured."""
        file = self.path / ROWS
        if file.exists() and not (content := file.read_bytes()).endswith(b"\n"):
            write_atomically(file, content[: content.rfind(b"\n") + 1])

    def _about(self) -> Row:
        return read_object(self.path / self.head, "the identity of what was measured")


def _agree(key: str, there: object, here: object) -> bool:
    if key == OUTPUT and isinstance(there, float) and isinstance(here, float):
        return math.isclose(there, here, rel_tol=ROUNDING)
    return there == here
