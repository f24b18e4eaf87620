"""What a setting of a scheme may be: a number, or a switch that is on or off."""

from __future__ import annotations

from typing import Any, TypeGuard

from nfm.errors import UsageError


def is_number(value: Any) -> TypeGuard[int | float]:
    """Tell whether `value` is a real number; True and False are switches.

    >>> is_number(0.5), is_number(True), is_number("3")
    (True, False, False)
    """
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_whole(value: Any) -> TypeGuard[int]:
    """Tell whether `value` is a whole number; True and False are switches."""
    return isinstance(value, int) and not isinstance(value, bool)


def check_switch(name: str, value: Any) -> bool:
    """Return a switch; refuse what is not True or False, because every text counts as true."""
    if not isinstance(value, bool):
        raise UsageError(f"{name}: expected True or False, got {value!r}")
    return value
