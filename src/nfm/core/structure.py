"""Tensors inside tuples, lists, mappings and dataclasses: find them, change them, keep the rest."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch import Tensor

Path = str | int


def parts(structure: Any) -> Iterator[tuple[Path, Any]]:
    """Yield (name or index, element) of a container's elements; nothing for anything else."""
    if isinstance(structure, Mapping):
        yield from structure.items()
    elif isinstance(structure, list | tuple):
        yield from enumerate(structure)
    elif dataclasses.is_dataclass(structure) and not isinstance(structure, type):
        yield from ((field.name, getattr(structure, field.name)) for field in dataclasses.fields(structure))


def tensors_in(structure: Any) -> Iterator[Tensor]:
    """Yield every tensor of a structure, in order."""
    if isinstance(structure, Tensor):
        yield structure
        return
    for _, element in parts(structure):
        yield from tensors_in(element)


def replace(structure: Any, changes: dict[Path, Any]) -> Any:
    """Return a copy of a container with some elements changed; the container is left as it was."""
    if isinstance(structure, Mapping):
        changed = dict(structure)
        changed.update(changes)
        return changed if type(structure) is dict else _rebuild(structure, changed)
    if isinstance(structure, list | tuple):
        elements = [changes.get(index, element) for index, element in enumerate(structure)]
        return type(structure)(*elements) if hasattr(structure, "_fields") else type(structure)(elements)
    return dataclasses.replace(structure, **changes)  # type: ignore[arg-type]


def _rebuild(original: Mapping[Any, Any], content: dict[Any, Any]) -> Any:
    """Return a mapping of the original's own class; output classes that are dataclasses take keywords."""
    if dataclasses.is_dataclass(original):
        return type(original)(**content)
    if isinstance(original, defaultdict):
        return type(original)(original.default_factory, content)
    return type(original)(content)  # type: ignore[call-arg]


def map_tensors(function: Callable[[Tensor], Tensor], structure: Any) -> Any:
    """Return the structure with `function` applied to each of its tensors."""
    if isinstance(structure, Tensor):
        return function(structure)
    changes = {path: map_tensors(function, element) for path, element in parts(structure)}
    return replace(structure, changes) if changes else structure
