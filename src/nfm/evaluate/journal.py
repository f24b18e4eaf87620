"""A folder of rows beside what was measured: `identity.json` or the like, and `rows.jsonl`.

Rows are added one by one and are durable at once; the half of a line that a killed process left is dropped. Only the
same measurement may go on in a folder.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from nfm.errors import DataError, UsageError
from nfm.results import Row, append_rows, provenance, read_rows, to_line, write_atomically

ROWS = "rows.jsonl"


@dataclass(frozen=True)
class Journal:
    """The rows of one measurement; `kind` is what messages call it, `head` the file that tells what was measured."""

    path: Path
    head: str
    kind: str

    def start(self, identity: Row) -> None:
        """Go on with the rows of `identity`, or make the folder where there is none."""
        if (self.path / self.head).exists():
            self._mend()
            self.match(identity)
            return
        content = json.dumps(identity | {"provenance": provenance()}, indent=2, sort_keys=True)
        write_atomically(self.path / self.head, content.encode())

    def match(self, identity: Row) -> None:
        """Refuse the rows of another measurement, with the differences."""
        held = self.identity()
        pairs = [(key, held.get(key), identity.get(key)) for key in sorted(identity.keys() | held.keys())]
        wrong = [f"{key}: {there!r} there, {here!r} here" for key, there, here in pairs if there != here]
        if wrong:
            raise UsageError(
                f"{self.path} holds another {self.kind} ({'; '.join(wrong)}); choose another directory"
            )

    def rows(self) -> Iterator[Row]:
        """Yield the rows, in the order they were measured."""
        file = self.path / ROWS
        return read_rows(file) if file.exists() else iter(())

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

    def _mend(self) -> None:
        """Drop the half of a last line that a killed process left; what it tells counts as not measured."""
        file = self.path / ROWS
        if file.exists() and not (content := file.read_bytes()).endswith(b"\n"):
            write_atomically(file, content[: content.rfind(b"\n") + 1])

    def _about(self) -> Row:
        file = self.path / self.head
        try:
            about = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise DataError(f"{file}: expected the identity of what was measured, got {error}") from None
        if not isinstance(about, dict):
            raise DataError(f"{file}: expected the identity of what was measured, got {type(about).__name__}")
        return about
