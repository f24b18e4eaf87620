"""Records: the small file of rows that a run leaves behind, one line a cell, kept in the repository."""

from __future__ import annotations

import fcntl
import functools
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from nfm.errors import DataError
from nfm.reproduce.jobs import Job
from nfm.reproduce.statistics import DIGITS
from nfm.reproduce.study import Measure
from nfm.results import Row, read_rows, to_line, write_atomically

RUN, EPOCH, MEASURING = "run", "epoch", "measuring"
TRAINING = "training"  # the part of a record that is no measure's: the rows of its run and epochs
NEEDED = {
    RUN: ("made_by",),
    EPOCH: ("epoch",),
    "cell": ("measure", "perturbation", "level", "accuracy", "n", "data", "protocol"),
}
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
        """Add rows of the training or of a measure, all or none, unless another process added them meanwhile."""
        with _alone(self.path.parent):
            there = {_part(row) for row in self.rows()}
            new = [{**rounded(row), "run": self.run} for row in rows if _part(row) not in there]
            if new:
                write_atomically(self.path, "".join(map(to_line, (*_rows(self.path), *new))).encode())


def _part(row: Row) -> str:
    return str(row.get("measure", TRAINING))


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold a folder while a file in it is read and written again: one file may have the runs of many processes."""
    folder.mkdir(parents=True, exist_ok=True)
    held = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        os.close(held)


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
    return tuple(_checked(path, number, row) for number, row in enumerate(read_rows(path), start=1))


def _checked(path: Path, number: int, row: Row) -> Row:
    """Return a row that is of a run; refuse any other."""
    missing = [name for name in ("run", "kind", *NEEDED.get(str(row.get("kind")), ())) if name not in row]
    if missing:
        raise DataError(
            f"{path}, line {number}: expected a row of `nfm reproduce`, got one without {', '.join(missing)}; "
            "take the file away, and its runs are made anew"
        )
    return row


def rounded(row: Row) -> Row:
    """Return the row with numbers of six digits after the point: more say nothing of 10,000 examples."""
    return {name: round(value, DIGITS) if isinstance(value, float) else value for name, value in row.items()}
