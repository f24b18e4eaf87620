"""AugMix's views (Hendrycks et al. 2020, Section 3): chains of pixel operations, mixed with the image itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nfm.errors import UsageError
from nfm.method import pixels
from nfm.method.settings import is_number, is_whole
from nfm.randomness import fold, numpy_generator

LARGEST = 10.0  # severities are out of 10; a level is uniform from LEAST to the severity (the authors' code)
LEAST = 0.1
DEPTHS = (1, 3)  # operations a chain, "randomly selected" (Section 3)

Array = NDArray[Any]


@dataclass(frozen=True)
class Operation:
    """What it does to images, and its strength at a level (from 0 to 1 of the largest) for a side length."""

    apply: Callable[[Tensor, Tensor], Tensor]
    strength: Callable[[Array, int], Array]
    signed: bool = False


def _none(level: Array, side: int) -> Array:
    return np.zeros_like(level)


# AutoAugment's operations but those that overlap the corruption test set: contrast, color, brightness, sharpness,
# cutout (Section 3). Ranges and roundings are those of the authors' code.
OPERATIONS = (
    Operation(pixels.autocontrast, _none),
    Operation(pixels.equalize, _none),
    Operation(pixels.posterize, lambda level, side: 4 - np.floor(4 * level)),
    Operation(pixels.rotate, lambda level, side: np.floor(30 * level), signed=True),
    Operation(pixels.solarize, lambda level, side: 256 - np.floor(256 * level)),
    Operation(pixels.shear_x, lambda level, side: 0.3 * level, signed=True),
    Operation(pixels.shear_y, lambda level, side: 0.3 * level, signed=True),
    Operation(pixels.translate_x, lambda level, side: np.floor(side / 3 * level), signed=True),
    Operation(pixels.translate_y, lambda level, side: np.floor(side / 3 * level), signed=True),
)


@dataclass(frozen=True)
class Plan:
    """The random choices for a batch: of each example, view, chain and place in the chain."""

    operation: Array  # int64 [n, views, width, places]; -1 where a chain has ended
    level: Array  # [n, views, width, places], from 0 to 1
    sign: Array  # the same shape, -1 or 1
    chains: Array  # [n, views, width], the weights of the chains
    image: Array  # [n, views], the weight of the image itself


@dataclass(frozen=True)
class Chains:
    """How views are made: `width` chains of `depth` operations (None: 1 to 3) up to `severity` of 10.

    The chains' weights are Dirichlet(alpha), that of the image itself is Beta(alpha, alpha).
    """

    severity: float = 3.0  # Section 3 and the authors' code for CIFAR
    width: int = 3  # k = 3, Section 3
    depth: int | None = None
    alpha: float = 1.0  # Section 3

    def __post_init__(self) -> None:
        if not is_number(self.severity) or not LEAST <= self.severity <= LARGEST:
            raise UsageError(
                f"severity: expected a number from {LEAST} to {LARGEST:g}, got {self.severity!r}"
            )
        for name, value in (("width", self.width), ("depth", 1 if self.depth is None else self.depth)):
            if not is_whole(value) or value < 1:
                raise UsageError(f"{name}: expected a whole number of at least 1, got {value!r}")
        if not is_number(self.alpha) or not 0 < self.alpha < float("inf"):
            raise UsageError(f"alpha: expected a finite number greater than 0, got {self.alpha!r}")

    def plan(self, size: int, views: int, key: int) -> Plan:
        """Return the choices of `key` for `size` examples; those of one example do not depend on the others."""
        places = self.depth or DEPTHS[1]
        shape = (size, views, self.width)
        low = self.depth or DEPTHS[0]
        depth = _generator(key, "depth").integers(low, places + 1, shape)
        operation = _generator(key, "operation").integers(0, len(OPERATIONS), (*shape, places))
        level = _generator(key, "level").uniform(LEAST, self.severity, (*shape, places)) / LARGEST
        weights = _generator(key, "chains").dirichlet(np.full(self.width, self.alpha), shape[:2])
        image = _generator(key, "image").beta(self.alpha, self.alpha, shape[:2])
        ended = np.arange(places) >= depth[..., None]
        sign = _generator(key, "sign").choice([-1.0, 1.0], (*shape, places))
        return Plan(np.where(ended, -1, operation), level, sign, weights, image)

    def views(self, x: Tensor, count: int, key: int) -> list[Tensor]:
        """Return `count` views of the images `x`, each example its own."""
        plan = self.plan(len(x), count, key)
        with torch.no_grad():
            images = x.detach().float()
            copies = images[:, None].expand(-1, count * self.width, -1, -1, -1).flatten(0, 1)
            for place in range(plan.operation.shape[-1]):
                copies = _step(
                    copies,
                    *(part[..., place].reshape(-1) for part in (plan.operation, plan.level, plan.sign)),
                )
            chains = copies.view(len(x), count, self.width, *x.shape[1:])
            own, weights = (torch.from_numpy(part).to(images) for part in (plan.image, plan.chains))
            mixed = torch.einsum("nvk,nvkchw->nvchw", weights, chains)
            own = own[:, :, None, None, None]
            return list((own * images[:, None] + (1 - own) * mixed).clamp(0, 1).to(x.dtype).unbind(1))


def _generator(key: int, purpose: str) -> np.random.Generator:
    return numpy_generator(fold(key, purpose))


def _step(images: Tensor, operation: Array, level: Array, sign: Array) -> Tensor:
    """Return each image after its own operation; -1 leaves it as it is."""
    changed = images.clone()
    for index, kind in enumerate(OPERATIONS):
        rows = np.flatnonzero(operation == index)
        if not len(rows):
            continue
        strength = kind.strength(level[rows], images.shape[3]) * (sign[rows] if kind.signed else 1.0)
        where = torch.from_numpy(rows).to(images.device)
        changed[where] = kind.apply(images[where], torch.from_numpy(strength).to(images))
    return changed
