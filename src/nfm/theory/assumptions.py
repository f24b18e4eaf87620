"""The assumptions of Theorem 2, looked at on a given network: met or violated, with the number that tells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from nfm.randomness import fold, torch_generator
from nfm.theory.binary import BinaryMap, positive

SMALL = 1e-3  # a relative size that counts as 0: beyond rounding, far below any effect


@dataclass(frozen=True)
class Assumption:
    """One assumption: its name, whether it is met, and the number that was looked at."""

    name: str
    met: bool
    number: float
    site: str = ""

    def __str__(self) -> str:
        place = f" at {self.site!r}" if self.site else ""
        return f"{'met     ' if self.met else 'VIOLATED'}  {self.name}{place} ({self.number:.3g})"


def assumptions_of(
    start: BinaryMap, maps: Mapping[str, BinaryMap], *, seed: int = 0
) -> tuple[Assumption, ...]:
    """Return every assumption of Theorem 2 for the input and each site.

    Numbers: classes; the share on the right side; the relative gap of f and grad_k f . g_k; the curvature along
    a random direction, relative to f; the smallest gradient; the mean of the features over their size.
    """
    right = ((2 * start.y - 1) * start.f >= 0).double().mean()
    smallest = float(start.gradient.flatten(1).norm(dim=1).min())
    classes = max(2, start.places.outputs.shape[1])
    found = [
        Assumption("binary: one f, labels 0 and 1", classes == 2, classes),
        Assumption("Theta: every example is on its right side", bool(right == 1), float(right)),
        Assumption("the gradient at the input is not 0", smallest > 0, smallest),
    ]
    for site, place in maps.items():
        gap, curvature, off = _homogeneity(place), _curvature(place, seed), _off_centre(place.features)
        found += [
            Assumption("f = grad_k f . g_k", gap <= SMALL, gap, site),
            Assumption("no second derivative", curvature <= SMALL, curvature, site),
            Assumption("features have mean 0", off <= SMALL, off, site),
        ]
    return tuple(found)


def _homogeneity(place: BinaryMap) -> float:
    product = (place.gradient * place.features).flatten(1).sum(1)
    return float((product - place.f).norm() / positive(place.f.norm()))


def _curvature(place: BinaryMap, seed: int) -> float:
    generator = torch_generator(fold(seed, "curvature"))
    z = place.features
    direction = torch.randn(z.shape, generator=generator, dtype=torch.float64).to(z)
    direction = direction * z.square().mean().sqrt()
    parts = zip(
        place.places.chunks(place.places.batch), place.weights.split(place.places.batch),
        direction.split(place.places.batch), strict=True,
    )  # fmt: skip
    found = torch.cat([part.curvature(weight, v) for part, weight, v in parts])
    return float(found.norm() / positive(place.f.norm()))


def _off_centre(features: Tensor) -> float:
    flat = features.flatten(1)
    return float(flat.mean(0).norm() / positive(flat.square().sum(1).mean().sqrt()))
