"""The moments that enter the expansion: of the features, and of any noise law."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from nfm.core.noise import Noise
from nfm.errors import UsageError


@dataclass(frozen=True)
class Estimate:
    """A number and its standard error, 0 where the number is exact."""

    value: float
    error: float = 0.0

    def times(self, factor: float) -> Estimate:
        """Return the estimate times a number."""
        return Estimate(factor * self.value, abs(factor) * self.error)

    def __str__(self) -> str:
        return f"{self.value:.4g} ± {self.error:.1g}" if self.error else f"{self.value:.4g}"


@dataclass(frozen=True, eq=False)
class FeatureMoments:
    """Mean [d] and covariance of features, the latter as factor^T factor with a factor [m, d], m = min(n, d)."""

    mean: Tensor
    factor: Tensor

    @classmethod
    def of(cls, features: Tensor) -> FeatureMoments:
        """Return the moments of features [n, ...] under the empirical law D_x."""
        flat = features.flatten(1)
        mean = flat.mean(0)
        centred = (flat - mean) / math.sqrt(len(flat))
        tall = centred.shape[0] > centred.shape[1]
        return cls(mean, torch.linalg.qr(centred, mode="r")[1] if tall else centred)


@dataclass(frozen=True)
class NoiseMoments:
    """Levels of a noise, and the second moment of one value of its law, scale law and sparsity included."""

    add: float
    mult: float
    add_square: float
    mult_square: float
    granularity: str

    @classmethod
    def of(cls, noise: Noise, features: Tensor) -> NoiseMoments:
        """Return the moments of `noise` at these features; a relative level is in units of their deviation."""
        if not isinstance(noise, Noise):
            raise UsageError(f"noise: expected nfm.Noise(add, mult), got {noise!r}; nfm.Noise() is none")
        spread = float(features.std(correction=0)) if noise.relative else 1.0
        add_rms, mult_rms = replace(noise, add=1.0, mult=1.0).rms()
        return cls(
            add=noise.add * spread, mult=noise.mult, add_square=add_rms**2, mult_square=mult_rms**2,
            granularity=noise.granularity,
        )  # fmt: skip

    def shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of the values that features of `shape` [n, ...] need: 1 where they are shared."""
        kept = {"element": len(shape), "channel": 2, "sample": 1}[self.granularity]
        return tuple(size if axis < kept else 1 for axis, size in enumerate(shape))

    def gather(self, gradients: Tensor) -> Tensor:
        """Return, for gradients [n, K, ...], the sums [n, K, G] over the features that share one noise value.

        Their squares are u^T E[xi xi^T] u in units of the law's second moment.
        """
        shape = gradients.shape[:1] + gradients.shape[2:]
        shared = [axis + 1 for axis in range(1, len(shape)) if self.shape(tuple(shape))[axis] != shape[axis]]
        summed = gradients.sum(shared, keepdim=True) if shared else gradients
        return summed.flatten(2) if summed.ndim > 2 else summed[:, :, None]
