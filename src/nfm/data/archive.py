"""Extract tar and zip archives that may be hostile: regular files and folders inside the target, no more."""

from __future__ import annotations

import os
import shutil
import stat
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

from nfm.errors import DataError

MAX_BYTES = 64 << 30  # in all; ImageNet's training part unpacks to 138 GB and is not extracted here
MAX_MEMBERS = 2_000_000


@dataclass(frozen=True)
class Member:
    name: str
    size: int
    folder: bool
    entry: Any


def extract(archive: Path, target: Path, *, max_bytes: int = MAX_BYTES) -> list[Path]:
    """Extract `archive` into `target` and return the files; a bad member refuses the whole, nothing is left.

    Refused: links, devices, sparse files, absolute names, `..`, names that occur twice (also but for case),
    more than `max_bytes`. Permissions in the archive are ignored.
    """
    with _opened(archive) as opened:
        members = list(_members(opened, archive))
        _check(members, archive, max_bytes)
        draft = target.with_name(f".{target.name}.{os.getpid()}.extracting")
        shutil.rmtree(draft, ignore_errors=True)
        try:
            files = [_write(opened, member, draft, archive) for member in members if not member.folder]
            return _move(files, draft, target)
        finally:
            shutil.rmtree(draft, ignore_errors=True)


@contextmanager
def _opened(archive: Path) -> Iterator[tarfile.TarFile | zipfile.ZipFile]:
    try:
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as zipped:
                yield zipped
        else:
            with tarfile.open(archive, "r:*") as tarred:
                yield tarred
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, OSError) as error:
        raise DataError(f"{archive}: expected a whole tar or zip archive, got {error}") from error


def _members(opened: tarfile.TarFile | zipfile.ZipFile, archive: Path) -> Iterator[Member]:
    if isinstance(opened, tarfile.TarFile):
        for entry in opened:
            if not (entry.isdir() or entry.isreg()) or entry.issparse():
                raise DataError(
                    f"{archive}: member {entry.name!r} is neither a regular file nor a folder; refused"
                )
            yield Member(entry.name, entry.size, entry.isdir(), entry)
        return
    for info in opened.infolist():
        kind = stat.S_IFMT(info.external_attr >> 16)
        if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
            raise DataError(
                f"{archive}: member {info.filename!r} is neither a regular file nor a folder; refused"
            )
        yield Member(info.filename, info.file_size, info.is_dir(), info)


def _check(members: list[Member], archive: Path, max_bytes: int) -> None:
    seen: set[str] = set()
    for member in members:
        parts = PurePosixPath(member.name).parts
        if not parts or member.name.startswith("/") or ".." in parts or set(member.name) & set("\\\0:"):
            raise DataError(f"{archive}: member {member.name!r} leaves the target folder; refused")
        name = "/".join(parts).casefold()
        if name in seen and not member.folder:
            raise DataError(f"{archive}: member {member.name!r} occurs twice; refused")
        seen.add(name)
    total = sum(member.size for member in members)
    if total > max_bytes or len(members) > MAX_MEMBERS:
        raise DataError(
            f"{archive}: expected at most {max_bytes} bytes, got {total} in {len(members)} members"
        )


def _write(opened: Any, member: Member, draft: Path, archive: Path) -> Path:
    path = draft / PurePosixPath(member.name)
    path.parent.mkdir(parents=True, exist_ok=True)
    tarred = isinstance(opened, tarfile.TarFile)
    source: IO[bytes] = opened.extractfile(member.entry) if tarred else opened.open(member.entry)
    with source, path.open("xb") as file:
        shutil.copyfileobj(source, file, 1 << 20)
    if path.stat().st_size != member.size:
        raise DataError(
            f"{archive}: member {member.name!r} has {path.stat().st_size} bytes, not {member.size}"
        )
    return path


def _move(files: list[Path], draft: Path, target: Path) -> list[Path]:
    """Move the extracted files into `target`, whose other content stays."""
    moved = []
    for file in files:
        place = target / file.relative_to(draft)
        place.parent.mkdir(parents=True, exist_ok=True)
        moved.append(file.replace(place))
    return moved
