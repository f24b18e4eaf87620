"""Read a recipe: TOML, then overrides by dotted key. All errors are told at once."""

from __future__ import annotations

import dataclasses
import tomllib
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from nfm.config.schema import Config
from nfm.errors import ConfigError, UsageError, did_you_mean

Table = dict[str, Any]
T = TypeVar("T")


def read_config(path: Path | None, overrides: Sequence[str] = ()) -> Config:
    """Return the run that a TOML file (or none: the defaults) and ``key=value`` overrides describe."""
    errors: list[str] = []
    table = _read_toml(path) if path is not None else {}
    for override in overrides:
        try:
            _set(table, override)
        except UsageError as error:
            errors.append(str(error))
    config = build_table(Config, table, "", errors)
    if errors or config is None:
        raise ConfigError(
            "\n".join(errors) if len(errors) == 1 else f"{len(errors)} errors:\n  " + "\n  ".join(errors)
        )
    return config


def _read_toml(path: Path) -> Table:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(
            f"cannot read recipe {path}: {error.strerror}; `nfm list recipes` shows those there are"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{path}: expected TOML, got {error}") from None


def _set(table: Table, override: str) -> None:
    key, equals, text = override.partition("=")
    if not equals or not key:
        raise UsageError(f"--set: expected key=value, such as method.noise.add=0.5, got {override!r}")
    *above, last = _path(key)
    for name in above:
        table = table.setdefault(name, {})
        if not isinstance(table, dict):
            raise UsageError(f"--set {key}: {name!r} is a value, not a table")
    table[last] = parse_value(text)


def _path(key: str) -> list[str]:
    """Split a dotted key; a part in quotes may hold dots: ``optimizer.rates."stage1.*"``."""
    try:
        table: Any = tomllib.loads(f"{key} = 0")
    except tomllib.TOMLDecodeError:
        return key.strip().split(".")
    names = []
    while isinstance(table, dict):
        (name, table), *_ = table.items()
        names.append(name)
    return names


def parse_value(text: str) -> Any:
    """Return `text` as a TOML value; what is none is a string, so that quotes can be left out.

    >>> parse_value("0.5"), parse_value("true"), parse_value("cifar10"), parse_value("[1, 2]")
    (0.5, True, 'cifar10', [1, 2])
    """
    try:
        table = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    return table["value"] if len(table) == 1 else text  # more than one: a text with line breaks


def build_table(kind: type[T], table: Any, where: str, errors: list[str]) -> T | None:
    """Return the dataclass `kind` made of `table`; add what is wrong to `errors`, and go on."""
    if not isinstance(table, Mapping):
        errors.append(f"{where}: expected a table, got {table!r}")
        return None
    hints = get_type_hints(kind)
    known = [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]
    before = len(errors)
    values: Table = {}
    for name, value in table.items():
        key = f"{where}.{name}".lstrip(".")
        if name not in known:
            errors.append(f"unknown key {key!r}; known here: {', '.join(known)}{did_you_mean(name, known)}")
        elif dataclasses.is_dataclass(hints[name]):
            values[name] = build_table(hints[name], value, key, errors)
        else:
            values[name] = _convert(value, hints[name], key, errors)
    if len(errors) > before:
        return None
    try:
        return kind(**values)
    except UsageError as error:
        errors.append(f"{where}: {error}" if where else str(error))
        return None


def _convert(value: Any, hint: Any, key: str, errors: list[str]) -> Any:
    """Return `value` if it is of the kind that `hint` says; lists become tuples, whole numbers floats."""
    if get_origin(hint) in (Union, types.UnionType):
        hint = next(option for option in get_args(hint) if option is not type(None))
    origin = get_origin(hint) or hint
    if origin is Literal:
        if value not in get_args(hint):
            allowed = ", ".join(map(str, get_args(hint)))
            errors.append(
                f"{key}: expected one of {allowed}, got {value!r}{did_you_mean(str(value), get_args(hint))}"
            )
        return value
    if origin is tuple:
        inner = get_args(hint)[0]
        items = [value] if isinstance(value, str) else value
        if isinstance(items, list):
            return tuple(_convert(item, inner, f"{key}[{i}]", errors) for i, item in enumerate(items))
    elif origin is dict and isinstance(value, Mapping):
        return dict(value)
    elif origin is float and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    elif (
        isinstance(origin, type) and isinstance(value, origin) and isinstance(value, bool) == (origin is bool)
    ):
        return value
    errors.append(f"{key}: expected {_kind(hint)}, got {value!r}")
    return value


def _kind(hint: Any) -> str:
    names = {
        int: "a whole number",
        float: "a number",
        str: "a text",
        bool: "true or false",
        tuple: "a list",
        dict: "a table",
    }
    return names.get(get_origin(hint) or hint, str(hint))
