"""Noisy Feature Mixup inside any PyTorch network.

Names are imported when they are first used, so that ``import nfm`` and ``nfm --help`` cost next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nfm import theory
    from nfm.core.draw import Draw
    from nfm.core.noise import Noise
    from nfm.errors import NFMError
    from nfm.evaluate.calling import CallablePackage
    from nfm.method.attach import Mixer, attach
    from nfm.method.boundaries import find_sites
    from nfm.method.feature_mixup import NoisyFeatureMixup, Outcome
    from nfm.method.presets import preset
    from nfm.method.schemes import scheme
    from nfm.train.fit import fit

    evaluate: CallablePackage

_HOMES = {
    "Draw": "nfm.core.draw",
    "Mixer": "nfm.method.attach",
    "NFMError": "nfm.errors",
    "Noise": "nfm.core.noise",
    "NoisyFeatureMixup": "nfm.method.feature_mixup",
    "Outcome": "nfm.method.feature_mixup",
    "attach": "nfm.method.attach",
    "find_sites": "nfm.method.boundaries",
    "fit": "nfm.train.fit",
    "preset": "nfm.method.presets",
    "scheme": "nfm.method.schemes",
}

__all__ = [
    "Draw", "Mixer", "NFMError", "Noise", "NoisyFeatureMixup", "Outcome", "attach", "evaluate", "find_sites",
    "fit", "preset", "scheme", "theory",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in ("evaluate", "theory"):
        return import_module(f"nfm.{name}")  # packages; the first can be called
    if name not in _HOMES:
        raise AttributeError(f"module 'nfm' has no attribute {name!r}; it has: {', '.join(__all__)}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
