"""Write a recipe: the settings that are not the default, as TOML that `read_config` takes."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from nfm.config.schema import Config
from nfm.errors import UsageError

BARE = re.compile(r"[A-Za-z0-9_-]+")


def write_config(config: Config, head: str = "") -> str:
    """Return `config` as TOML below the comment `head`; reading it gives `config` again.

    >>> print(write_config(Config()), end="")
    [data]
    name = "digits"
    <BLANKLINE>
    [model]
    name = "small_conv"
    <BLANKLINE>
    [method]
    scheme = "nfm"
    """
    told, default = dataclasses.asdict(config), dataclasses.asdict(Config())
    named = {"data": "name", "model": "name", "method": "scheme"}  # told even where they are the default
    parts = [
        _table(part, {k: v for k, v in table.items() if v != default[part][k] or k == named.get(part)})
        for part, table in told.items()
    ]
    comment = ["".join(f"# {line}".rstrip() + "\n" for line in head.splitlines())] if head else []
    return "\n".join([*comment, *(part for part in parts if part)])


def _table(name: str, table: Mapping[str, Any]) -> str:
    lines = [f"{_key(key)} = {_value(value)}" for key, value in table.items() if value is not None]
    return "".join(f"{line}\n" for line in [f"[{name}]", *lines]) if lines else ""


def _key(key: str) -> str:
    return key if BARE.fullmatch(key) else _text(key)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, Mapping):
        return f"{{ {', '.join(_pairs(value))} }}" if value else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    raise UsageError(f"expected what TOML can say, got {value!r}")


def _pairs(table: Mapping[str, Any]) -> Iterator[str]:
    return (f"{_key(key)} = {_value(value)}" for key, value in table.items() if value is not None)


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")  # which JSON lets pass, TOML not
