"""A report: the rows of an evaluation, and what the model did on each example.

On disk a report is a directory: `identity.json` (what was measured), `rows.jsonl` (one row a cell) and
`outcomes/*.npz` (one file a cell), written cell by cell, so that an interrupted evaluation can go on;
and `strips/*.npz`, a few examples of a cell to look at.
"""

from __future__ import annotations

import hashlib
import io
import struct
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import NoneType
from typing import Any, TypeVar
from urllib.parse import quote

import numpy as np

from nfm.errors import DataError, EnvironmentProblem, UsageError
from nfm.evaluate.journal import ROWS as ROWS
from nfm.evaluate.journal import Journal
from nfm.evaluate.outcomes import Outcomes
from nfm.evaluate.strip import Strip
from nfm.results import Row, write_atomically

LONGEST = 120  # letters of a label in the name of a file
IDENTITY = "identity.json"
KEYS = ("model", "protocol", "ids", "n", "seed", "temperature")  # of every identity
TYPES = {
    "perturbation": (str,), "level": (int, float), "accuracy": (int, float), "lo": (int, float),
    "hi": (int, float), "n": (int,), "flags": (list,), "settings": (dict,), "ece": (int, float, NoneType),
    "level_pixel": (int, float, NoneType), "level_normalised": (int, float, NoneType),
}  # fmt: skip
DAMAGE = (  # what numpy and zipfile raise on flipped bits and torn files
    OSError, EOFError, ValueError, TypeError, KeyError, AttributeError, ArithmeticError, RuntimeError, MemoryError,
    SyntaxError, struct.error, zipfile.BadZipFile, zlib.error,
)  # fmt: skip
FILES = ("outcomes/*.npz", "strips/*.npz", "about.json")  # beside the rows
Key = tuple[str, float]  # label of the perturbation, level
Kept = TypeVar("Kept", Outcomes, Strip)

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

    def joined(self, *others: Report) -> Report:
        """Return the same rows and those of `others` beside them; a row of a cell of theirs takes over its flags."""
        whole = Report(self.identity, list(self.rows), dict(self.outcomes))
        own = {_key(row): row for row in self.rows}
        for other in others:
            for row in other.rows:
                if _key(row) not in own:
                    own[_key(row)] = row
                    whole.add(row, other.outcomes[_key(row)])
                mine = own[_key(row)]["flags"]
                mine += [flag for flag in row["flags"] if flag not in mine]
        return whole

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
            if _key(row) not in held.outcomes:
                folder.write(row, self.outcomes[_key(row)])
        return folder.path


@dataclass(frozen=True)
class Folder:
    """A report on disk."""

    path: Path

    @property
    def journal(self) -> Journal:
        """The rows on disk, and what they are of."""
        return Journal(self.path, IDENTITY, "evaluation", KEYS, TYPES)

    def open(self, identity: Row) -> Report:
        """Return the finished cells of `identity`; make the directory where there is none."""
        self.journal.check_place()
        self.journal.start(identity)
        return self.read()

    def clear(self) -> None:
        """Remove the evaluation that is there, and nothing else; refuse a folder of something else."""
        self.journal.clear(*FILES)

    def match(self, identity: Row) -> Report:
        """Return the finished cells; refuse those of another evaluation, with the differences."""
        self.journal.match(identity)
        return self.read()

    def read(self) -> Report:
        """Return the report; a row whose outcomes are missing counts as not measured."""
        report = Report(self.journal.identity())
        for row in self.journal.rows():
            file = self._file("outcomes", _key(row))
            if file.exists():
                outcomes = _read(Outcomes, file)
                try:
                    outcomes.check(row, next(iter(report.outcomes.values()), None))
                except ValueError as error:
                    raise DataError(f"{file}: expected the outcomes behind its row, got {error}") from None
                report.add(row, outcomes)
        return report

    def write(self, row: Row, outcomes: Outcomes) -> None:
        """Write one finished cell: the outcomes first, so that a row always has its own."""
        write_atomically(self._file("outcomes", _key(row)), _packed(outcomes.arrays()))
        self.journal.add(row)

    def rewrite(self, rows: list[Row]) -> None:
        """Replace these rows by the same with the flags that only the whole can tell; leave the others."""
        new = {_key(row): row for row in rows}
        self.journal.rewrite([new.get(_key(row), row) for row in self.journal.rows()])

    def write_strip(self, key: Key, strip: Strip) -> None:
        """Write what a few examples of a cell look like."""
        write_atomically(self._file("strips", key), _packed(vars(strip)))

    def has_strip(self, key: Key) -> bool:
        """Tell whether there is a strip of that cell."""
        return self._file("strips", key).exists()

    def read_strip(self, key: Key) -> Strip:
        """Return what a few examples of a cell look like."""
        return _read(Strip, self._file("strips", key))

    def made_by(self) -> Row:
        """Return what the report was made by: versions, commit, machine."""
        return self.journal.made_by()

    def _file(self, kind: str, key: Key) -> Path:
        perturbation, level = key
        return self.path / kind / f"{_file_name(perturbation)}-{quote(repr(level))}.npz"


def load_report(directory: Path | str) -> Report:
    """Return the report that was saved in `directory`."""
    return Folder(Path(directory)).read()


def _file_name(label: str) -> str:
    """Return `label` as part of a file name; one that is too long is told by its beginning and a hash."""
    plain = quote(label, safe="(),=", errors="backslashreplace")
    if len(plain) <= LONGEST:
        return plain
    return f"{plain[:LONGEST]}-{hashlib.sha256(plain.encode()).hexdigest()[:16]}"


def _key(row: Row) -> Key:
    return row["perturbation"], row["level"]


def _packed(arrays: Mapping[str, Any]) -> bytes:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    return buffer.getvalue()


def _read(kind: type[Kept], file: Path) -> Kept:
    try:
        with np.load(io.BytesIO(file.read_bytes()), allow_pickle=False) as arrays:
            kept = kind(**arrays)
            lengths = {len(column) for column in arrays.values()}
    except DAMAGE as error:
        raise DataError(f"{file}: expected the {kind.__name__.lower()} of a cell, got {error}") from None
    if len(lengths) != 1:
        raise DataError(f"{file}: expected columns of one length, got {sorted(lengths)}")
    return kept


def _show(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if isinstance(value, float):
        return f"{value:.4g}"
    return "" if value is None else str(value)
