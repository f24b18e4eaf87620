"""``--option NAME=VALUE``: words to the options of a network."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from nfm.config.read import parse_value
from nfm.errors import UsageError


def parse_options(words: Iterable[str]) -> dict[str, Any]:
    """Return the options by name.

    >>> parse_options(["width=0.5", "norm=batch"])
    {'width': 0.5, 'norm': 'batch'}
    """
    options = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise UsageError(f"--option: expected NAME=VALUE, such as width=0.25, got {word!r}")
        options[name] = parse_value(value)
    return options
