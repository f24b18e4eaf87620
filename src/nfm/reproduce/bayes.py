"""The toy task's law: two noisy circles, whose best possible classifier is a radius."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nfm.data.toy import FACTOR, NOISE

Floats = NDArray[np.float64]
REACH, POINTS = 4.0, 40_001  # of the integral over the radius: 10 deviations beyond the outer circle


def radial_density(r: Floats, ring: float, noise: float = NOISE) -> Floats:
    """Return the density of the distance from the origin of a point on a circle of radius `ring` plus noise (Rice)."""
    return r / noise**2 * np.exp(-(r**2 + ring**2) / (2 * noise**2)) * np.i0(r * ring / noise**2)


def bayes_radius(factor: float = FACTOR, noise: float = NOISE) -> float:
    """Return the radius below which a point is more likely of the inner circle.

    >>> round(bayes_radius(), 3)
    0.673
    """
    r = np.linspace(0, REACH, POINTS)
    inner = radial_density(r, factor, noise) > radial_density(r, 1.0, noise)
    return float(r[np.flatnonzero(inner)[-1]])


def bayes_accuracy(factor: float = FACTOR, noise: float = NOISE) -> float:
    """Return the accuracy of the best possible classifier, both circles equally likely.

    >>> round(100 * bayes_accuracy(), 2)
    90.77
    """
    r = np.linspace(0, REACH, POINTS)
    best = np.maximum(radial_density(r, factor, noise), radial_density(r, 1.0, noise))
    return float(np.trapezoid(best, r) / 2)
