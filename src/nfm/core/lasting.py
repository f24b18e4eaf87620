"""Tensors that are made once and read in any mode."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch

from nfm.core.onlookers import in_a_mode

Given = ParamSpec("Given")
Made = TypeVar("Made")


def lasting(function: Callable[Given, Made]) -> Callable[Given, Made]:
    """Let `function` make ordinary tensors in inference mode too: a training step may be the next to read them.

    >>> with torch.inference_mode():
    ...     lasting(torch.zeros)(1).is_inference(), torch.zeros(1).is_inference()
    (False, True)
    """
    outside = torch.inference_mode(False)(function)

    @functools.wraps(function)
    def run(*args: Given.args, **kwargs: Given.kwargs) -> Made:
        return (outside if torch.is_inference_mode_enabled() else function)(*args, **kwargs)

    return run


def remembered(last: int) -> Callable[[Callable[Given, Made]], Callable[Given, Made]]:
    """Let a function remember the `last` things that it made, to be read only, and shared by all who ask.

    Under a mode, which may make other tensors of them, it remembers nothing.
    """

    def remembering(function: Callable[Given, Made]) -> Callable[Given, Made]:
        made = lasting(function)
        kept = functools.lru_cache(maxsize=last)(made)

        @functools.wraps(function)
        def run(*args: Given.args, **kwargs: Given.kwargs) -> Made:
            if in_a_mode():
                return made(*args, **kwargs)
            return kept(*args, **kwargs)  # type: ignore[arg-type]  # all of them can be hashed

        return run

    return remembering
