"""The two forms of SM E that do not hold, to be shown beside those that do. Nothing here may certify.

Its last lemma quotes Theorem 1.2 of Devroye, Mehrabian & Reddad (2018), a maximum of three terms, with two of
them multiplied. That theorem itself is false for different means; a later version treats equal means alone.
"""

from __future__ import annotations

import torch
from torch import Tensor

from nfm.theory.total_variation import SiteNoise

FACTOR = 9 / 2


def orthogonal_spread(v: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """Return sqrt(sum rho_i^2) of the covariances (d, d) on the complement of v (d,), d > 1."""
    basis = torch.linalg.qr(v.double()[:, None], mode="complete")[0][:, 1:]
    inside, other = (basis.T @ matrix.double() @ basis for matrix in (first, second))
    # The eigenvalues of first^-1 second are those of its whitened, symmetric form.
    root = torch.linalg.cholesky(inside)
    half = torch.linalg.solve_triangular(root, other, upper=False)
    whitened = torch.linalg.solve_triangular(root, half.mT, upper=False)
    return torch.linalg.eigvalsh((whitened + whitened.mT) / 2).sub(1).norm()


def three_terms(v: Tensor, first: Tensor, second: Tensor) -> tuple[float, float, float]:
    """Return the three terms of the source for N(m, first) and N(m + v, second): v (d,), matrices (d, d)."""
    v, first, second = v.double(), first.double(), second.double()
    along = v @ first @ v
    return (
        float((v @ (first - second) @ v).abs() / along),
        float(v @ v / along.sqrt()),
        float(orthogonal_spread(v, first, second)),
    )


def three_term_bound(v: Tensor, first: Tensor, second: Tensor) -> float:
    """Return 9/2 min{1, max of the three terms}: the source's form, false for different means."""
    return FACTOR * min(1.0, max(three_terms(v, first, second)))


def printed_terms(z: Tensor, v: Tensor, noise: SiteNoise, *, beta: float = 0.0) -> tuple[float, float]:
    """Return A and B of the lemma, for features z and z + v (d,); `beta` is its lower bound of z z^T."""
    z, v = z.double(), v.double()
    floor = noise.add**2 + noise.mult**2 * beta**2
    first, second = noise.covariance(z), noise.covariance(z + v)
    a = noise.mult**2 / floor * (v @ v + 2 * v @ z)
    b = v.norm() / floor**0.5 * orthogonal_spread(v, first, second)
    return float(a), float(b)


def printed_bound(z: Tensor, v: Tensor, noise: SiteNoise, *, beta: float = 0.0) -> float:
    """Return 9/2 min{1, max{A, B}} as printed: 0 without multiplicative noise, whatever v is."""
    return FACTOR * min(1.0, max(printed_terms(z, v, noise, beta=beta)))
