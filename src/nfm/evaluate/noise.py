"""Perturbations that need no model: noises, occlusion, blur."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from nfm.errors import UsageError
from nfm.evaluate.batchwise import rectangle
from nfm.evaluate.keyed import Stream
from nfm.evaluate.perturbation import Perturbation, Unit, check_images
from nfm.randomness import numpy_generator
from nfm.registry import Registry

LEAST = 1e-6  # a level whose square is taken: below, no float32 pixel changes

PERTURBATIONS: Registry[type[Perturbation]] = Registry("perturbation")


@PERTURBATIONS.register("clean")
@dataclass(frozen=True)
class Clean(Perturbation):
    """Nothing: the examples as they are. Its only level is 0."""

    name: ClassVar[str] = "clean"
    unit: ClassVar[Unit] = "share"

    def check_level(self, level: float) -> float:
        """Return 0, the only level."""
        if level != 0:
            raise UsageError(f"clean: expected level 0, got {level!r}")
        return 0.0


@PERTURBATIONS.register("white_noise")
@dataclass(frozen=True)
class WhiteNoise(Perturbation):
    """x + level * normal (the paper's Section "Input Perturbations"; sigma is a standard deviation)."""

    name: ClassVar[str] = "white_noise"
    unit: ClassVar[Unit] = "deviation"

    def apply(self, x: Tensor, stream: Stream, level: float) -> Tensor:
        return stream.normal(x.shape[1:]).mul_(level).add_(x)


@PERTURBATIONS.register("salt_and_pepper")
@dataclass(frozen=True)
class SaltAndPepper(Perturbation):
    """Set each pixel to 0 or to 1 with probability level/2 each (the paper's formula).

    ``per="pixel"``: one draw a pixel (i, j), all its channels are set together.
    ``per="value"``: one draw a value.
    """

    per: Literal["pixel", "value"] = "pixel"

    name: ClassVar[str] = "salt_and_pepper"
    unit: ClassVar[Unit] = "share"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.per not in ("pixel", "value"):
            raise UsageError(f"salt_and_pepper: expected per='pixel' or per='value', got {self.per!r}")

    def apply(self, x: Tensor, stream: Stream, level: float) -> Tensor:
        whole_pixels = self.per == "pixel" and x.dim() == 4
        drawn = stream.uniform((1, *x.shape[2:]) if whole_pixels else x.shape[1:])
        # Bounds of (0, 0) and (1, 1) set a pixel, (0, 1) leaves it: one pass over the channels.
        lower = drawn.clone().ge_(1 - level / 2)  # in place it stays a float: a third of the time of a cast
        return x.clamp(min=lower, max=drawn.ge_(level / 2))


@PERTURBATIONS.register("speckle")
@dataclass(frozen=True)
class Speckle(Perturbation):
    """x + level * x * normal."""

    name: ClassVar[str] = "speckle"
    unit: ClassVar[Unit] = "deviation"

    def apply(self, x: Tensor, stream: Stream, level: float) -> Tensor:
        return stream.normal(x.shape[1:]).mul_(level).mul_(x).add_(x)


@PERTURBATIONS.register("shot")
@dataclass(frozen=True)
class Shot(Perturbation):
    """Photon counts: Poisson(x * photons) / photons with photons = 1 / level**2.

    The standard deviation is level * sqrt(x). The counts come from one numpy generator an example.
    """

    name: ClassVar[str] = "shot"
    unit: ClassVar[Unit] = "deviation"

    def check_level(self, level: float) -> float:
        """Return `level` as a float, or refuse it."""
        return _within_reach(self.name, super().check_level(level))

    def apply(self, x: Tensor, stream: Stream, level: float) -> Tensor:
        rates = x.double().div_(level**2).cpu().numpy()
        keys = stream.keys.bitwise_and(2**63 - 1).tolist()
        counts = [numpy_generator(key).poisson(rate) for key, rate in zip(keys, rates, strict=True)]
        return torch.from_numpy(np.stack(counts)).to(x).mul_(level**2)


@PERTURBATIONS.register("uniform_noise")
@dataclass(frozen=True)
class UniformNoise(Perturbation):
    """x + level * uniform on [-1, 1]: the level is the largest change, not a deviation."""

    name: ClassVar[str] = "uniform_noise"
    unit: ClassVar[Unit] = "deviation"

    def apply(self, x: Tensor, stream: Stream, level: float) -> Tensor:
        return stream.uniform(x.shape[1:]).mul_(2).sub_(1).mul_(level).add_(x)


@PERTURBATIONS.register("occlusion")
@dataclass(frozen=True)
class Occlusion(Perturbation):
    """Cover `level` of the area, a rectangle shaped as the image and inside it, with the grey `fill`."""

    fill: float = 0.5

    name: ClassVar[str] = "occlusion"
    unit: ClassVar[Unit] = "share"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.fill <= 1:
            raise UsageError(f"occlusion: expected a fill from 0 (black) to 1 (white), got {self.fill!r}")

    def apply(self, x: Tensor, stream: Stream, level: float) -> Tensor:
        check_images(x, self.name)
        height, width = x.shape[2:]
        sides = round(math.sqrt(level) * height), round(math.sqrt(level) * width)
        return x.masked_fill(rectangle(stream.uniform((2,)), sides, (height, width)), self.fill)


@PERTURBATIONS.register("blur")
@dataclass(frozen=True)
class Blur(Perturbation):
    """Convolve with a Gaussian of standard deviation `level` pixels, mirrored at the border."""

    name: ClassVar[str] = "blur"
    unit: ClassVar[Unit] = "width"

    def check_level(self, level: float) -> float:
        """Return `level` as a float, or refuse it."""
        return _within_reach(self.name, super().check_level(level))

    def apply(self, x: Tensor, stream: Stream, level: float) -> Tensor:
        check_images(x, self.name)
        radius = min(math.ceil(4 * level), min(x.shape[2:]) - 1)  # a mirror reaches one image far
        weights = [math.exp(-((place / level) ** 2) / 2) for place in range(-radius, radius + 1)]
        kernel = [weight / math.fsum(weights) for weight in weights]
        padded = F.pad(x, [radius] * 4, mode="reflect")
        return _slide(_slide(padded, kernel, axis=2), kernel, axis=3)


def _within_reach(name: str, level: float) -> float:
    """Return `level`, or refuse one whose square leaves what can be computed with."""
    if level and not LEAST <= level <= 1 / LEAST:
        raise UsageError(f"{name}: expected level 0 or one from {LEAST:g} to {1 / LEAST:g}, got {level!r}")
    return level


def _slide(x: Tensor, kernel: list[float], *, axis: int) -> Tensor:
    """Correlate `x` with `kernel` along `axis`; plain sums, for a convolution's bits depend on the batch."""
    size = x.shape[axis] - len(kernel) + 1
    total = x.narrow(axis, 0, size) * kernel[0]
    for place, weight in enumerate(kernel[1:], start=1):
        total += x.narrow(axis, place, size) * weight
    return total
