"""``nfm list WHAT``: schemes, models, data, recipes, one line each."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence


def add_arguments(options: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    options.add_argument("what", choices=list(LISTS), help="what to list")
    options.add_argument("--data-root", help="folder to look for data in first")


def run(given: argparse.Namespace) -> None:
    """Print the list."""
    print(columns(LISTS[given.what](given)))


def columns(lines: Iterable[Sequence[str]]) -> str:
    """Return lines of cells as text with aligned columns.

    >>> print(columns([("a", "one"), ("long", "two")]))
    a     one
    long  two
    """
    cells = [list(line) for line in lines]
    if not cells:
        return "none"
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in cells
    )


def _schemes(given: argparse.Namespace) -> Iterable[Sequence[str]]:
    from nfm.method.schemes import SCHEMES

    return [(name, SCHEMES[name].about) for name in SCHEMES]


def _models(given: argparse.Namespace) -> Iterable[Sequence[str]]:
    from nfm.models import MODELS, known_options

    options = {name: ", ".join(f"{k}={v}" for k, v in known_options(name).items()) for name in MODELS}
    third = [(f"{name}:NAME", "a network of that package") for name in ("timm", "torchvision")]
    return [*options.items(), *third, ("module:pkg.mod:factory", "a function of your own")]


def _data(given: argparse.Namespace) -> Iterable[Sequence[str]]:
    from nfm.data import available

    head = ("name", "present", "size", "classes", "where")
    return [head, *([_cell(row.get(name)) for name in head] for row in available(given.data_root))]


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "-" if value is None else str(value)


def _recipes(given: argparse.Namespace) -> Iterable[Sequence[str]]:
    from nfm.config.recipes import head_of, recipe_names

    return [(name, head_of(path).splitlines()[0]) for name, path in recipe_names().items()]


LISTS: dict[str, Callable[[argparse.Namespace], Iterable[Sequence[str]]]] = {
    "schemes": _schemes, "models": _models, "data": _data, "recipes": _recipes,
}  # fmt: skip
