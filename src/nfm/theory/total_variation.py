"""Total variation between the Gaussian laws of two noisy features (SM E): only what holds.

A feature z at a site becomes (1 + mult * xi) * z + add * xi' with normal xi, xi': a Gaussian with mean z and a
covariance that depends on z. Total variation does not change under an affine map, so each pair of laws is
brought to N(0, I) and N(shift, diag(ratio)), and every bound is a sum over coordinates.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from nfm.core.noise import Noise
from nfm.errors import ShapeError, UsageError
from nfm.randomness import torch_generator

Multiplier = Literal["element", "scalar"]
SAME = 1e-12  # variances that differ by less, relatively, are rounded versions of one


@dataclass(frozen=True)
class SiteNoise:
    """Gaussian noise at a site: levels, and whether a feature is multiplied element by element or as a whole.

    ``element`` is what NFM does, Sigma(z) = add^2 I + mult^2 diag(z)^2; ``scalar`` is what SM E writes,
    Sigma(z) = add^2 I + mult^2 z z^T.
    """

    add: float
    mult: float = 0.0
    multiplier: Multiplier = "element"

    def __post_init__(self) -> None:
        if not 0 < self.add < math.inf:
            raise UsageError(
                f"add: expected a level above 0, got {self.add!r}; without additive noise the laws of two "
                "features can be a distance of 1 apart, however near they are"
            )
        if not 0 <= self.mult < math.inf:
            raise UsageError(f"mult: expected a finite level, 0 or greater, got {self.mult!r}")
        if self.multiplier not in get_args(Multiplier):
            raise UsageError(f"multiplier: expected element or scalar, got {self.multiplier!r}")

    @classmethod
    def of(cls, noise: Noise) -> SiteNoise:
        """Return the noise of a method, if it is a Gaussian one: no other law has these distances."""
        laws = [law for law, level in ((noise.add_law, noise.add), (noise.mult_law, noise.mult)) if level]
        scales = [s for s, level in ((noise.add_scale, noise.add), (noise.mult_scale, noise.mult)) if level]
        plain = noise.granularity == "element" and not noise.sparsity and not noise.relative
        if {*laws} - {"gaussian"} or {*scales} - {"fixed"} or not plain:
            raise UsageError(f"expected Gaussian noise of fixed levels, one value an element, got {noise}")
        return cls(noise.add, noise.mult)

    def variances(self, z: Tensor) -> Tensor:
        """Return the diagonal of Sigma(z), for the multiplier ``element`` all of it."""
        return self.add**2 + self.mult**2 * z.square()

    def covariance(self, z: Tensor) -> Tensor:
        """Return Sigma(z) of features (B, d) as matrices (B, d, d)."""
        if self.multiplier == "element":
            return torch.diag_embed(self.variances(z))
        eye = torch.eye(z.shape[-1], dtype=z.dtype, device=z.device)
        return self.add**2 * eye + self.mult**2 * z[..., :, None] * z[..., None, :]

    def sample(self, z: Tensor, n: int, generator: torch.Generator) -> Tensor:
        """Return `n` noisy copies (n, *shape) of one feature of any shape."""
        add = torch.randn(n, *z.shape, generator=generator, dtype=z.dtype).to(z.device)
        if not self.mult:
            return z + self.add * add
        shape = z.shape if self.multiplier == "element" else (1,) * z.dim()
        mult = torch.randn(n, *shape, generator=generator, dtype=z.dtype).to(z.device)
        return (1 + self.mult * mult) * z + self.add * add


@dataclass(frozen=True)
class Pair:
    """N(0, I) against N(shift, diag(ratio)), both float64 (B, k): a pair of Gaussians up to an affine map."""

    shift: Tensor
    ratio: Tensor

    @classmethod
    def of_covariances(cls, v: Tensor, first: Tensor, second: Tensor) -> Pair:
        """Return the pair N(m, first), N(m + v, second) for v (B, k) and matrices (B, k, k)."""
        root = torch.linalg.cholesky(first.double())
        half = torch.linalg.solve_triangular(root, second.double(), upper=False)
        whitened = torch.linalg.solve_triangular(root, half.mT, upper=False)
        ratio, axes = torch.linalg.eigh((whitened + whitened.mT) / 2)
        moved = torch.linalg.solve_triangular(root, v.double()[..., None], upper=False)
        return cls((axes.mT @ moved)[..., 0], ratio)


def noisy_pair(z: Tensor, other: Tensor, noise: SiteNoise) -> Pair:
    """Return the laws of the noisy features `z` and `other`, both (B, ...)."""
    if z.shape != other.shape or z.dim() < 2:
        raise ShapeError(
            f"expected two batches of features (B, ...), got {tuple(z.shape)}, {tuple(other.shape)}"
        )
    z, other = z.flatten(1).double(), other.flatten(1).double()
    if noise.multiplier == "element":
        variances = noise.variances(z)
        return Pair((other - z) / variances.sqrt(), noise.variances(other) / variances)
    # Outside the plane of both features the two laws are the same and independent of what happens in it.
    places = torch.linalg.qr(torch.stack([z, other], -1))[1]
    z, other = places[..., 0], places[..., 1]
    return Pair.of_covariances(other - z, noise.covariance(z), noise.covariance(other))


def equal_covariance(pair: Pair) -> Tensor:
    """Return 2 Phi(|shift| / 2) - 1, the exact distance where the covariances are equal; 1 elsewhere."""
    same = ((pair.ratio - 1).abs() <= SAME).all(-1)
    return torch.where(same, shifted(pair.shift.norm(dim=-1)), torch.ones_like(pair.shift[..., 0]))


def shifted(distance: Tensor) -> Tensor:
    """Return the distance of two normal laws of deviation 1 whose means are `distance` apart.

    >>> round(float(shifted(torch.tensor(1.0))), 4)
    0.3829
    """
    return torch.erf(distance / math.sqrt(8))


def triangle(pair: Pair) -> Tensor:
    """Return the way over a third law that shares its mean with one and its covariance with the other.

    The first part is exact; the second is 3/2 |S1^-1/2 S2 S1^-1/2 - I|_F (Devroye, Mehrabian & Reddad 2018,
    Theorem 1.1: equal means).
    """
    means = torch.minimum(pair.shift.norm(dim=-1), (pair.shift / pair.ratio.sqrt()).norm(dim=-1))
    spreads = torch.minimum((pair.ratio - 1).norm(dim=-1), (1 / pair.ratio - 1).norm(dim=-1))
    return shifted(means) + 1.5 * spreads


def divergence(pair: Pair) -> Tensor:
    """Return the smaller of both Kullback-Leibler divergences, in nats."""
    shift, ratio = pair.shift.square(), pair.ratio
    backward = (ratio - 1 - ratio.log() + shift).sum(-1) / 2
    forward = (1 / ratio - 1 + ratio.log() + shift / ratio).sum(-1) / 2
    return torch.minimum(forward, backward).clamp(min=0)


def pinsker(pair: Pair) -> Tensor:
    """Return sqrt(KL / 2) (Pinsker's inequality)."""
    return (divergence(pair) / 2).sqrt()


def bretagnolle_huber(pair: Pair) -> Tensor:
    """Return sqrt(1 - exp(-KL)) (Bretagnolle & Huber 1979)."""
    return (-torch.expm1(-divergence(pair))).sqrt()


def bhattacharyya(pair: Pair) -> Tensor:
    """Return sqrt(1 - c^2) with c the integral of the root of both densities (Le Cam); below the one before."""
    shift, ratio = pair.shift.square(), pair.ratio
    exponent = (shift / (1 + ratio) / 4 + ((1 + ratio) / 2).log() / 2 - ratio.log() / 4).sum(-1)
    return (-torch.expm1(-2 * exponent.clamp(min=0))).sqrt()


BOUNDS: dict[str, Callable[[Pair], Tensor]] = {
    "equal_covariance": equal_covariance,
    "triangle": triangle,
    "pinsker": pinsker,
    "bretagnolle_huber": bretagnolle_huber,
    "bhattacharyya": bhattacharyya,
}


def total_variation_bound(pair: Pair) -> Tensor:
    """Return the smallest of all bounds that hold, at most 1."""
    return torch.stack([bound(pair) for bound in BOUNDS.values()]).amin(0).clamp(max=1)


def sampled_distance(pair: Pair, *, draws: int, key: int) -> tuple[Tensor, Tensor]:
    """Return a Monte Carlo estimate of the distance, E (1 - dQ/dP)^+ under P, and its standard error."""
    shape = (len(pair.shift), draws, pair.shift.shape[1])
    x = torch.randn(shape, generator=torch_generator(key), dtype=torch.float64)
    shift, ratio = pair.shift[:, None], pair.ratio[:, None]
    log_ratio = (x.square() - (x - shift).square() / ratio - ratio.log()).sum(-1) / 2
    parts = -torch.expm1(log_ratio.clamp(max=0))
    return parts.mean(1), parts.std(1) / math.sqrt(draws)
