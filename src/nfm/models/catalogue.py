"""The registry of networks: name -> builder, and the options of each, read from its signature."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from nfm.errors import UsageError, did_you_mean
from nfm.models.network import Network
from nfm.registry import Registry

Builder = Callable[..., Network]
"""(task, *, options with defaults) -> a network."""

MODELS: Registry[Builder] = Registry("model")


def known_options(name: str) -> dict[str, Any]:
    """Return the options of a network and their defaults.

    >>> import nfm.models
    >>> known_options("preact_resnet18")
    {'width': 1.0, 'authors_form': False}
    """
    parameters = inspect.signature(MODELS[name]).parameters.values()
    return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}


def check_options(name: str, options: Mapping[str, Any]) -> None:
    """Refuse options that the network does not have, or of another kind than its default."""
    known = known_options(name)
    for option, value in options.items():
        if option not in known:
            listed = ", ".join(known) or "none"
            raise UsageError(
                f"model {name!r} has no option {option!r}; known: {listed}{did_you_mean(option, known)}"
            )
        _check_kind(f"model {name!r}, option {option!r}", value, type(known[option]))


def _check_kind(where: str, value: Any, kind: type) -> None:
    accepted = (int, float) if kind is float else kind
    if not isinstance(value, accepted) or isinstance(value, bool) != (kind is bool):
        raise UsageError(f"{where}: expected {kind.__name__}, got {value!r}")
