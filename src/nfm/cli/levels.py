"""``--levels white_noise=0.1,0.2 pgd(norm=l2)=0.5``: words to cells."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from nfm.config.read import parse_value
from nfm.errors import UsageError, did_you_mean
from nfm.evaluate import ATTACKS, PERTURBATIONS, Cell, Clean, cells, parse_eps
from nfm.evaluate.corruptions import CORRUPTIONS, Corruption
from nfm.evaluate.perturbation import Change

SHAPE = re.compile(r"(?P<name>\w+)(\((?P<options>[^()]*)\))?=(?P<levels>[^=()]+)")


def parse_levels(words: Iterable[str]) -> list[Cell]:
    """Return the clean cell and those that the words name."""
    return [Cell(Clean(), 0.0), *(cell for word in words for cell in _parse(word))]


def _parse(word: str) -> list[Cell]:
    found = SHAPE.fullmatch(word)
    if found is None:
        raise UsageError(
            f"--levels: expected NAME=LEVEL,LEVEL or NAME(OPTION=VALUE)=LEVEL, such as white_noise=0.1,0.2, "
            f"pgd(norm=l2)=0.5, pgd=8/255 or fog=1,3,5, got {word!r}"
        )
    change = _change(found["name"], found["options"] or "")
    return cells(change, [parse_eps(level) for level in found["levels"].split(",")])


def _change(name: str, options: str) -> Change:
    known: dict[str, Callable[..., Change]] = {name: partial(Corruption, name) for name in CORRUPTIONS}
    known |= {key: registry[key] for registry in (PERTURBATIONS, ATTACKS) for key in registry}
    if name not in known:
        raise UsageError(f"--levels: unknown {name!r}; known: {', '.join(known)}{did_you_mean(name, known)}")
    given = dict(_option(name, word) for word in options.split(",") if word.strip())
    try:
        return known[name](**given)
    except TypeError as error:
        raise UsageError(f"--levels: {name}({options}): {error}") from None


def _option(name: str, word: str) -> tuple[str, Any]:
    key, equals, value = word.partition("=")
    if not equals:
        raise UsageError(f"--levels: {name}: expected OPTION=VALUE in the brackets, got {word!r}")
    return key.strip(), parse_value(value)
