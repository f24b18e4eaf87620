"""Tensors that are made once and read in any mode."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch

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
