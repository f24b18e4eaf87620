"""What a network is built for, and the checks that every network's options share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from nfm.errors import UsageError


@dataclass(frozen=True)
class Task:
    """Classes to tell apart, and the inputs: images of [0, 1] pixels, or vectors.

    `image_size` is the side of a square image; None means vectors of `in_channels` features.
    `mean` and `std` (one number a channel) are the network's own normalisation; None means none.
    """

    num_classes: int
    in_channels: int = 3
    image_size: int | None = 32
    mean: Sequence[float] | None = None
    std: Sequence[float] | None = None

    def __post_init__(self) -> None:
        check_count("num_classes", self.num_classes)
        check_count("in_channels", self.in_channels)
        if self.image_size is not None:
            check_count("image_size", self.image_size)
        if (self.mean is None) != (self.std is None):
            raise UsageError(f"expected mean and std, or neither; got mean={self.mean} and std={self.std}")
        for name, values in (("mean", self.mean), ("std", self.std)):
            if values is not None:
                self._check_channels(name, values)

    def _check_channels(self, name: str, values: Sequence[float]) -> None:
        legal = all(math.isfinite(value) and (name == "mean" or value > 0) for value in values)
        if len(values) != self.in_channels or not legal:
            kind = "finite" if name == "mean" else "positive"
            raise UsageError(f"{name}: expected {self.in_channels} {kind} numbers, got {tuple(values)}")

    def image_side(self, network: str) -> int:
        """Return the image size, or refuse vectors in the name of `network`."""
        if self.image_size is None:
            raise UsageError(
                f"{network} needs images, got vectors (image_size=None); the network for vectors is mlp"
            )
        return self.image_size


def check_count(name: str, value: int) -> int:
    """Return `value`, a whole number of at least 1, or refuse it."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise UsageError(f"{name}: expected a whole number of at least 1, got {value!r}")
    return value


def check_rate(name: str, value: float) -> float:
    """Return `value`, the share that a dropout leaves out, or refuse it."""
    if not 0 <= value < 1:
        raise UsageError(f"{name}: expected a share from 0 up to (not including) 1, got {value!r}")
    return value


def widened(channels: int, width: float) -> int:
    """Return `channels` times `width`, rounded to at least one channel.

    >>> widened(64, 0.25), widened(64, 2)
    (16, 128)
    """
    if not (math.isfinite(width) and width > 0):
        raise UsageError(f"width: expected a positive multiplier, got {width!r}")
    return max(1, round(channels * width))
