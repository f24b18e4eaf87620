"""Import a torchvision whose compiled part does not load.

Used only when a user asks for a third-party network.

Some torchvision wheels are built for another PyTorch (a CUDA wheel beside a CPU torch, for instance). Their
compiled library then fails to load in silence, and the import stops with "operator torchvision::nms does not
exist". Networks need none of those operators: declaring the two that the import looks for lets it finish.
What stays unavailable are `torchvision.ops` and the JPEG readers, which say so when they are called.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

import torch

from nfm.errors import need

OPERATORS = ("nms", "qnms")
SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"

_declared: list[torch.library.Library] = []  # a library's operators live as long as it does


def import_torchvision(purpose: str) -> ModuleType:
    """Return torchvision, with its two operators declared if that is what it lacks."""
    try:
        return _import_declaring_operators()
    except (ImportError, RuntimeError) as error:
        raise need("torchvision", "zoo", purpose, error) from error


def _import_declaring_operators() -> ModuleType:
    _forget_failed_import()  # one that failed earlier in this process
    try:
        return importlib.import_module("torchvision")
    except RuntimeError as error:
        if "torchvision::nms does not exist" not in str(error) or _declared:
            raise
    library = torch.library.Library("torchvision", "DEF")
    _declared.append(library)
    for operator in OPERATORS:
        library.define(operator + SCHEMA)
    _forget_failed_import()
    return importlib.import_module("torchvision")


def _forget_failed_import() -> None:
    """Drop the submodules that a failed import leaves behind: a second import would not bind them."""
    if "torchvision" not in sys.modules:
        for name in [name for name in sys.modules if name.startswith("torchvision.")]:
            del sys.modules[name]
