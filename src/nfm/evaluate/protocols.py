"""The two named protocols: where noise is added, whether it is clipped, what a level means.

Rows of different protocols are never put in one table.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from nfm.errors import ShapeError, UsageError, did_you_mean
from nfm.evaluate.keyed import Stream
from nfm.evaluate.perturbation import Change, Perturbation, check_images, check_pixels

# The authors' normalisation until 2021-11-19, of both CIFARs; the paper's tables fit this one.
AUTHORS_MEAN = (0.4914, 0.4822, 0.4465)
AUTHORS_STD = (0.2023, 0.1994, 0.2010)
PROTOCOLS = ("pixel", "authors")


@dataclass(frozen=True)
class Normalisation:
    """Mean and standard deviation of each channel, in [0, 1] pixels."""

    mean: tuple[float, ...]
    std: tuple[float, ...]

    @property
    def scale(self) -> float:
        """The mean standard deviation: what one normalised unit is in pixels."""
        return math.fsum(self.std) / len(self.std)

    def agrees(self, other: Normalisation) -> bool:
        """Tell whether both are the same to four digits."""
        ours, theirs = self.mean + self.std, other.mean + other.std
        return len(ours) == len(theirs) and all(
            math.isclose(a, b, abs_tol=1e-4) for a, b in zip(ours, theirs, strict=True)
        )


class EvaluationProtocol(Protocol):
    """How a perturbation is applied to the pixels that the model sees."""

    @property
    def name(self) -> str: ...

    def check(self, change: Change) -> None: ...

    def perturb(self, x: Tensor, ids: Tensor, noise: Perturbation, level: float, *, seed: int) -> Tensor: ...

    def units(self, change: Change, level: float) -> tuple[float, float | None]: ...

    def flags(self, change: Change) -> list[str]: ...


@dataclass(frozen=True)
class Pixel:
    """Levels are in [0, 1] pixels, and what leaves [0, 1] is clipped. The default."""

    normalisation: Normalisation | None = None

    name: ClassVar[str] = "pixel"

    def check(self, change: Change) -> None:
        """Refuse nothing: every change is defined on pixels."""

    def perturb(self, x: Tensor, ids: Tensor, noise: Perturbation, level: float, *, seed: int) -> Tensor:
        """Return `x` (pixels) perturbed and clipped."""
        return noise(x, ids, level, seed=seed)

    def units(self, change: Change, level: float) -> tuple[float, float | None]:
        """Return the level in pixels and in normalised units (None where no normalisation is known)."""
        if change.unit != "deviation":
            return level, level
        return level, level / self.normalisation.scale if self.normalisation else None

    def flags(self, change: Change) -> list[str]:
        """Return what a reader of the row has to know."""
        return []


@dataclass(frozen=True)
class Authors:
    """The protocol behind the paper's tables, as its authors' code has it.

    White noise is added *after* normalisation and never clipped: a level of .1 is .020 in pixels.
    Salt and pepper hits channel 0 only: ceil(level/2 * H * W) places, drawn without replacement, are set to
    the minimum of that image's channel 0, and as many, drawn again (the two draws may overlap), to
    its maximum. The touched share of all values is therefore level/3.
    One point is not theirs: their draw is reseeded in each batch and so depends on the batch size;
    here it is keyed by example, as everywhere.
    With another normalisation than theirs a level is another amount of noise. The name then tells the
    deviations, so that such rows stand in a table of their own.
    """

    normalisation: Normalisation = Normalisation(AUTHORS_MEAN, AUTHORS_STD)

    @property
    def foreign(self) -> bool:
        """Whether the noise is added after another normalisation than the authors'."""
        return not self.normalisation.agrees(Normalisation(AUTHORS_MEAN, AUTHORS_STD))

    @property
    def name(self) -> str:
        """``authors``, or ``authors(std=0.25)``: only rows of one name may be compared."""
        told = ",".join(f"{value:.4g}" for value in self.normalisation.std)
        return f"authors(std={told})" if self.foreign else "authors"

    def check(self, change: Change) -> None:
        """Refuse what the authors' code does not have; level 0 of anything is the clean set."""
        if change.label != "clean":
            self._rule(change)

    def perturb(self, x: Tensor, ids: Tensor, noise: Perturbation, level: float, *, seed: int) -> Tensor:
        """Return the pixels whose normalised values are the authors' perturbed input."""
        check_pixels(x, ids)
        level = noise.check_level(level)
        if level == 0:
            return x.clone()
        return self._rule(noise)(x, noise.stream(ids, level, seed=seed), level)

    def units(self, change: Change, level: float) -> tuple[float, float | None]:
        """Return the level in pixels and in normalised units."""
        return (level * self.normalisation.scale if change.unit == "deviation" else level), level

    def flags(self, change: Change) -> list[str]:
        """Return what a reader of the row has to know."""
        if change.unit != "deviation":
            return ["protocol authors"]
        own = ["noise added after the model's own normalisation, not the authors'"] if self.foreign else []
        return ["protocol authors", "noise not clipped", *own]

    def _rule(self, change: Change) -> Callable[[Tensor, Stream, float], Tensor]:
        rules = {"white_noise": self._white, "salt_and_pepper": self._salt_and_pepper}
        if change.label not in rules:
            raise UsageError(
                f"protocol authors knows {', '.join(rules)}, not {change.label!r}; use protocol 'pixel'"
            )
        return rules[change.label]

    def _white(self, x: Tensor, stream: Stream, level: float) -> Tensor:
        if x.dim() != 4 or x.shape[1] != len(self.normalisation.std):
            raise ShapeError(
                f"protocol authors: expected images of {len(self.normalisation.std)} channels, got shape "
                f"{tuple(x.shape)}; pass Authors(Normalisation(mean, std)) with one number a channel"
            )
        std = torch.tensor(self.normalisation.std, device=x.device).view(-1, 1, 1)
        return stream.normal(x.shape[1:]).mul_(std * level).add_(x)

    def _salt_and_pepper(self, x: Tensor, stream: Stream, level: float) -> Tensor:
        check_images(x, "salt_and_pepper")
        changed = x.clone()
        channel = changed[:, 0].flatten(1)  # (B, H * W), a copy
        count = math.ceil(level / 2 * channel.shape[1])
        ends = channel.amin(1, keepdim=True), channel.amax(1, keepdim=True)  # "salt" is the minimum there
        for purpose, value in enumerate(ends):
            places = stream.uniform(channel.shape[1:], purpose=purpose).argsort(dim=1, stable=True)[:, :count]
            channel.scatter_(1, places, value.expand(-1, count))
        changed[:, 0] = channel.view_as(changed[:, 0])
        return changed


def find_normalisation(model: Any) -> Normalisation | None:
    """Return the constants of the model's child `normalise` (buffers `mean` and `std`), if it has one."""
    layer = getattr(model, "normalise", None)
    buffers = [getattr(layer, name, None) for name in ("mean", "std")]
    if not all(isinstance(buffer, Tensor) for buffer in buffers):
        return None
    mean, std = (tuple(buffer.detach().double().flatten().tolist()) for buffer in buffers)  # type: ignore[union-attr]
    return Normalisation(mean, std)


def check_protocol(name: str) -> str:
    """Return the name of a protocol, or refuse it."""
    if name not in PROTOCOLS:
        raise UsageError(
            f"unknown protocol {name!r}; known: {', '.join(PROTOCOLS)}{did_you_mean(name, PROTOCOLS)}"
        )
    return name


def choose_protocol(protocol: str | EvaluationProtocol, model: Any) -> EvaluationProtocol:
    """Return the protocol of a name, for `model`: `authors` adds noise after the model's own normalisation."""
    if not isinstance(protocol, str):
        return protocol
    found = find_normalisation(model)
    if check_protocol(protocol) == "pixel":
        return Pixel(found)
    theirs = Authors()
    return theirs if found is None or theirs.normalisation.agrees(found) else Authors(found)
