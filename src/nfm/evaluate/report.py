"""A report: the rows of an evaluation, and what the model did on each example.

On disk a report is a directory: `identity.json` (what was measured), `rows.jsonl` (one row a cell) and
`outcomes/*.npz` (one file a cell), written cell by cell, so that an interrupted evaluation can go on.
"""

from __future__ import annotations

import io
import json
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from nfm.errors import DataError, EnvironmentProblem, UsageError
from nfm.evaluate.outcomes import Outcomes
from nfm.results import Row, append_rows, provenance, read_rows, to_line, write_atomically

Key = tuple[str, float]  # label of the perturbation, level

COLUMNS = (
    "perturbation",
    "level",
    "level_pixel",
    "level_normalised",
    "accuracy",
    "lo",
    "hi",
    "n",
    "ece",
    "flags",
)


@dataclass(frozen=True)
class Report:
    """Rows, one a cell, in the order they were measured; and the outcomes behind each."""

    identity: Row  # model, protocol, ids, seed: what must agree for a cell to be reused
    rows: list[Row] = field(default_factory=list)
    outcomes: dict[Key, Outcomes] = field(default_factory=dict)

    def add(self, row: Row, outcomes: Outcomes) -> None:
        """Add a finished cell."""
        self.rows.append(row)
        self.outcomes[row["perturbation"], row["level"]] = outcomes

    def row(self, perturbation: str, level: float) -> Row:
        """Return the row of one cell."""
        for row in self.rows:
            if (row["perturbation"], row["level"]) == (perturbation, level):
                return row
        measured = ", ".join(f"{row['perturbation']} {row['level']:g}" for row in self.rows)
        raise UsageError(f"no cell {perturbation} {level:g} in this report; it has: {measured}")

    @property
    def flags(self) -> list[str]:
        """Every flag of any row, each once."""
        return list(dict.fromkeys(flag for row in self.rows for flag in row["flags"]))

    def table(self) -> str:
        """Return the rows as text, one line a cell, with every flag."""
        lines = [COLUMNS, *([_show(row[column]) for column in COLUMNS] for row in self.rows)]
        widths = [max(len(line[place]) for line in lines) for place in range(len(COLUMNS))]
        return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)

    def to_frame(self) -> Any:
        """Return the rows as a pandas DataFrame."""
        try:
            import pandas
        except (ImportError, RuntimeError) as error:
            raise EnvironmentProblem(f"to_frame needs pandas ({error}); pip install pandas") from error
        return pandas.DataFrame(self.rows)

    def save(self, directory: Path | str) -> Path:
        """Write the report into `directory`, which must be new or hold the same evaluation."""
        folder = Folder(Path(directory))
        held = folder.open(self.identity)
        for row in self.rows:
            key = row["perturbation"], row["level"]
            if key not in held.outcomes:
                folder.write(row, self.outcomes[key])
        return folder.path


@dataclass(frozen=True)
class Folder:
    """A report on disk."""

    path: Path

    def open(self, identity: Row) -> Report:
        """Return the finished cells of `identity`; make the directory where there is none."""
        if (self.path / "identity.json").exists():
            return self.match(identity)
        content = json.dumps(identity | {"provenance": provenance()}, indent=2, sort_keys=True)
        write_atomically(self.path / "identity.json", content.encode())
        return Report(identity)

    def match(self, identity: Row) -> Report:
        """Return the finished cells; refuse those of another evaluation, with the differences."""
        held = self.read()
        keys = sorted(identity.keys() | held.identity.keys())
        pairs = [(key, held.identity.get(key), identity.get(key)) for key in keys]
        wrong = [f"{key}: {there!r} there, {here!r} here" for key, there, here in pairs if there != here]
        if wrong:
            raise UsageError(
                f"{self.path} holds another evaluation ({'; '.join(wrong)}); choose another directory"
            )
        return held

    def read(self) -> Report:
        """Return the report; a row whose outcomes are missing counts as not measured."""
        report = Report(self._identity())
        rows = self.path / "rows.jsonl"
        for row in read_rows(rows) if rows.exists() else ():
            file = self._file(row)
            if file.exists():
                report.add(row, _read_outcomes(file))
        return report

    def write(self, row: Row, outcomes: Outcomes) -> None:
        """Write one finished cell: the outcomes first, so that a row always has its own."""
        buffer = io.BytesIO()
        np.savez_compressed(buffer, **outcomes.arrays())  # type: ignore[arg-type]
        write_atomically(self._file(row), buffer.getvalue())
        append_rows(self.path / "rows.jsonl", [row])

    def rewrite(self, rows: list[Row]) -> None:
        """Replace the rows by the same rows with the flags that only the whole report can tell."""
        write_atomically(self.path / "rows.jsonl", "".join(map(to_line, rows)).encode())

    def _identity(self) -> Row:
        file = self.path / "identity.json"
        try:
            identity = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, json.JSONDecodeError) as error:
            raise DataError(f"{file}: expected the identity of a report, got {error}") from None
        return {key: value for key, value in identity.items() if key != "provenance"}

    def _file(self, row: Row) -> Path:
        return self.path / "outcomes" / f"{quote(row['perturbation'], safe='(),=')}-{row['level']!r}.npz"


def load_report(directory: Path | str) -> Report:
    """Return the report that was saved in `directory`."""
    return Folder(Path(directory)).read()


def _read_outcomes(file: Path) -> Outcomes:
    try:
        with np.load(io.BytesIO(file.read_bytes()), allow_pickle=False) as arrays:
            return Outcomes(**arrays)
    except (OSError, ValueError, TypeError, zipfile.BadZipFile) as error:
        raise DataError(f"{file}: expected the outcomes of a cell, got {error}") from None


def _show(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if isinstance(value, float):
        return f"{value:.4g}"
    return "" if value is None else str(value)
