"""Name -> builder. A miss lists the names and the nearest one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from nfm.errors import UsageError, did_you_mean

Entry = TypeVar("Entry")


class Registry(Generic[Entry]):
    """Entries by name, in the order they were added.

    >>> shapes = Registry("shape")
    >>> shapes.add("circle", 1)
    1
    >>> shapes["cirle"]
    Traceback (most recent call last):
        ...
    nfm.errors.UsageError: unknown shape 'cirle'; known: circle (did you mean 'circle'?)
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._entries: dict[str, Entry] = {}

    def add(self, name: str, entry: Entry) -> Entry:
        """Add `entry` under `name`; a name is taken once."""
        if name in self._entries:
            raise UsageError(f"{self.kind} {name!r} is registered already")
        self._entries[name] = entry
        return entry

    def register(self, name: str) -> Callable[[Entry], Entry]:
        """Return a decorator that adds what it decorates under `name`."""
        return lambda entry: self.add(name, entry)

    def __getitem__(self, name: str) -> Entry:
        try:
            return self._entries[name]
        except KeyError:
            known = ", ".join(self._entries)
            raise UsageError(
                f"unknown {self.kind} {name!r}; known: {known}{did_you_mean(name, self._entries)}"
            ) from None

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)
