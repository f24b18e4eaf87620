"""Records: the small file of rows that a run leaves behind, one line a cell, kept in the repository."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from nfm.reproduce.jobs import Job
from nfm.reproduce.study import Measure
from nfm.results import Row, read_rows, to_line, write_atomically

RUN, EPOCH = "run", "epoch"
DIGITS = 6
SEED = re.compile(r"-seed(\d+)-\w+$")  # in the name of a run: see Job.name


@dataclass(frozen=True)
class Record:
    """The rows of one run: its settings, its epochs, and the cells of each measure that is finished.

    A file has one run, or many tiny ones, told apart by `run`.
    """

    path: Path
    run: str

    @classmethod
    def of(cls, claims: Path, job: Job) -> Record:
        """Return the record of a job."""
        file = job.line.scale.together or job.name
        return cls(claims / "rows" / job.line.name / f"{file}.jsonl", job.name)

    def rows(self) -> list[Row]:
        """Return the rows of the run; none where there is no file."""
        return [row for row in _rows(self.path) if row["run"] == self.run]

    def missing(self, measures: Iterable[Measure]) -> list[Measure]:
        """Return the measures that are not in the file yet."""
        there = {row.get("measure") for row in self.rows()}
        return [measure for measure in measures if measure.key not in there]

    def add(self, rows: Iterable[Row]) -> None:
        """Add rows, all or none: a reader sees the old file or the new one."""
        new = [{**rounded(row), "run": self.run} for row in rows]
        write_atomically(self.path, "".join(map(to_line, (*_rows(self.path), *new))).encode())

    def begin(self, rows: Iterable[Row]) -> None:
        """Write the rows of the training, unless they are there."""
        if not any(row["kind"] == RUN for row in self.rows()):
            self.add(rows)


def recorded_seeds(claims: Path, jobs: Iterable[Job]) -> set[int]:
    """Return the seeds of all runs that left rows where those of `jobs` are, be they of these settings or not."""
    paths = {Record.of(claims, job).path: bool(job.line.scale.together) for job in jobs}
    names = {file.stem for folder in {path.parent for path in paths} for file in folder.glob("*.jsonl")}
    names |= {row["run"] for path, together in paths.items() if together for row in _rows(path)}
    return {int(found[1]) for name in names if (found := SEED.search(name))}


def _rows(path: Path) -> Sequence[Row]:
    """Return all rows of a file, read again only where it changed: a file may hold a thousand runs."""
    try:
        told = path.stat()
    except FileNotFoundError:
        return ()
    return _read(path, told.st_mtime_ns, told.st_size, told.st_ino)


@functools.lru_cache(maxsize=4)
def _read(path: Path, *version: int) -> tuple[Row, ...]:
    return tuple(read_rows(path))


def rounded(row: Row) -> Row:
    """Return the row with numbers of six digits after the point: more say nothing of 10,000 examples."""
    return {name: round(value, DIGITS) if isinstance(value, float) else value for name, value in row.items()}
