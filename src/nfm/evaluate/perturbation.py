"""What every perturbation shares: the checks, the key, level 0 and the clipping, written once.

The author of a perturbation writes one method, `apply`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from numbers import Integral, Real
from typing import Any, ClassVar, Literal, final

import torch
from torch import Tensor

from nfm.errors import ShapeError, UsageError
from nfm.evaluate.keyed import Stream
from nfm.randomness import check_seed

# "deviation": the level is a size of pixel values, and changes with their scale.
# "share": the level is a share of the pixels. "width": it is a length in pixels.
Unit = Literal["deviation", "share", "width"]

KINDS: dict[Any, tuple[str, type]] = {  # what an option annotated so must be
    "int": ("a whole number", Integral),
    "float": ("a number", Real),
    "bool": ("true or false", bool),
    "str": ("a name", str),
}


@dataclass(frozen=True)
class Change:
    """Something with a level that can be done to pixels; its options are its fields."""

    name: ClassVar[str]
    unit: ClassVar[Unit]

    def __post_init__(self) -> None:
        for option in fields(self):
            word, kind = KINDS.get(getattr(option.type, "__name__", option.type), ("", object))
            value = getattr(self, option.name)
            if not isinstance(value, kind) or (isinstance(value, bool) and kind in (Integral, Real)):
                raise UsageError(f"{self.name}: expected {word} for {option.name}, got {value!r}")

    @property
    def label(self) -> str:
        """The name with the options that are not the default: ``salt_and_pepper(per=value)``."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        options = [f"{f.name}={values[f.name]}" for f in fields(self) if values[f.name] != f.default]
        return f"{self.name}({','.join(options)})" if options else self.name

    def stream(self, ids: Tensor, level: float, *, seed: int) -> Stream:
        """Return the random numbers of this change at `level`, keyed by example."""
        return Stream.of(ids, check_seed(seed), self.label, repr(level))

    def passes(self) -> int:
        """Return about how many forward passes an example takes: what a time left is told by."""
        return 1

    def check_level(self, level: float) -> float:
        """Return `level` as a float, or refuse it."""
        largest = 1.0 if self.unit == "share" else math.inf
        if not 0 <= level <= largest or math.isinf(level):
            raise UsageError(f"{self.name}: expected a level from 0 to {largest:g}, got {level!r}")
        return float(level)


@dataclass(frozen=True)
class Perturbation(Change):
    """A change of the pixels that needs no model; level 0 is the identity."""

    @final
    def __call__(self, x: Tensor, ids: Tensor, level: float, *, seed: int) -> Tensor:
        """Return `x` (float32 in [0, 1], (B, C, H, W) or (B, d)) perturbed and clipped to [0, 1].

        The randomness is keyed by (seed, label, level, id of the example): how `x` was batched, and
        in which order, changes no bit. `ids` is int64 (B,).
        """
        check_pixels(x, ids)
        level = self.check_level(level)
        if level == 0:
            return x.clone()
        return self.apply(x, self.stream(ids, level, seed=seed), level).clamp_(0, 1)

    def apply(self, x: Tensor, stream: Stream, level: float) -> Tensor:
        """Return a fresh perturbed tensor; the caller clips it."""
        raise NotImplementedError


def check_pixels(x: Tensor, ids: Tensor) -> None:
    """Refuse what is not a batch of float32 pixels in [0, 1] with one int64 id an example."""
    if x.dtype != torch.float32 or x.dim() < 2 or len(x) == 0:
        raise ShapeError(f"expected a float32 batch (B, C, H, W) or (B, d), got {x.dtype} {tuple(x.shape)}")
    if ids.dtype != torch.int64 or ids.shape != x.shape[:1]:
        raise ShapeError(f"expected int64 ids of shape ({len(x)},), got {ids.dtype} {tuple(ids.shape)}")
    low, high = (float(end) for end in x.aminmax())
    if not (low >= 0 and high <= 1):
        raise UsageError(
            f"expected pixels in [0, 1], got values from {low:g} to {high:g}; "
            "the model owns its normalisation: pass plain pixels"
        )


def check_images(x: Tensor, name: str) -> None:
    """Refuse what is not (B, C, H, W)."""
    if x.dim() != 4:
        raise ShapeError(f"{name}: expected images (B, C, H, W), got shape {tuple(x.shape)}")
