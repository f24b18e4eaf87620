"""Files as they should be: read once, verified before anything parses them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from nfm.errors import DataError

BLOCK = 1 << 20


@dataclass(frozen=True)
class Pin:
    """A file's name and published digest: SHA-256, or MD5 where its publisher gives nothing better."""

    name: str
    digest: str
    algorithm: Literal["sha256", "md5"] = "sha256"


def hasher(algorithm: str) -> Any:
    # A FIPS host refuses MD5 unless told that it guards against accidents, not attackers.
    return hashlib.new(algorithm, usedforsecurity=False)


def digest(path: Path, algorithm: str = "sha256") -> str:
    """Return the digest of a file in hexadecimal digits."""
    state = hasher(algorithm)
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            state.update(block)
    return str(state.hexdigest())


def check_digest(found: str, pin: Pin, where: object) -> None:
    """Refuse content whose digest is not the pinned one."""
    if found != pin.digest:
        raise DataError(
            f"{where}: expected {pin.algorithm} {pin.digest}, got {found}: the file is damaged or not the "
            f"published {pin.name}; remove it and fetch it again"
        )


def verify(path: Path, pin: Pin) -> Path:
    """Return `path` if its content is the pinned one."""
    check_digest(digest(path, pin.algorithm), pin, path)
    return path


def read_verified(path: Path, pin: Pin) -> bytes:
    """Return the content of `path`, the very bytes whose digest was compared."""
    content = path.read_bytes()
    state = hasher(pin.algorithm)
    state.update(content)
    check_digest(str(state.hexdigest()), pin, path)
    return content


def provenance(folder: Path | str, pins: Iterable[Pin]) -> dict[str, Any]:
    """Return where verified files lie and what they are."""
    return {"folder": str(folder), "files": {pin.name: f"{pin.algorithm}:{pin.digest}" for pin in pins}}


def find_folder(places: Iterable[Path], names: Sequence[str], files: Sequence[str]) -> Path | None:
    """Return the first folder place/name, or place itself, that holds all `files`."""
    for folder in _candidates(places, names):
        if all((folder / file).is_file() for file in files):
            return folder
    return None


def find_file(places: Iterable[Path], names: Sequence[str]) -> Path | None:
    """Return the first file place/name."""
    paths = (place / name for place in places for name in names)
    return next((path for path in paths if path.is_file()), None)


def _candidates(places: Iterable[Path], names: Sequence[str]) -> Iterator[Path]:
    for place in places:
        yield from (place / name for name in names)
        if place.name in {Path(name).name for name in names}:
            yield place


def missing(
    name: str, put: str, places: Iterable[Path], address: str, *, downloadable: bool = True
) -> DataError:
    """Return the error for data that is not here: what to put where, and where it comes from."""
    searched = ", ".join(map(str, places))
    return DataError(
        f"{name} is not on this machine: expected {put} in one of {searched}; put it there ({address})"
        + (" or allow the download (download=True, --download)" if downloadable else "")
    )
