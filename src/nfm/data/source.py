"""What a data set brings to be asked for by name, and the registry of those names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from nfm.data.examples import DataSet
from nfm.registry import Registry


@dataclass(frozen=True)
class Request:
    """What a source is asked for.

    argument: what follows the name's colon; places: the folders to look in; download: whether it may.
    """

    argument: str
    places: tuple[Path, ...]
    seed: int
    download: bool


@dataclass(frozen=True)
class Source:
    """A data set that can be asked for by name.

    build: returns it whole; its validation part is empty unless the source has one of its own.
    where: returns the place it lies in, or None. size: for people, as "train + test of shape".
    argument: what must follow the colon of `name:ARGUMENT`; in brackets if it may be left out.
    """

    build: Callable[[Request], DataSet]
    where: Callable[[tuple[Path, ...]], str | None]
    size: str
    classes: int | None
    argument: str = ""

    @property
    def needs_argument(self) -> bool:
        return bool(self.argument) and not self.argument.startswith("[")


DATA: Registry[Source] = Registry("data set")
