"""Two classes in the plane, generated: the paper's two circles, and two moons."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nfm.data.examples import DataSet, in_memory
from nfm.data.source import DATA, Request, Source
from nfm.errors import UsageError
from nfm.randomness import fold, numpy_generator

POINTS, TRAIN_SHARE = 500, 0.6  # paper SM, "Illustrative experiments": 500 points; 300 train and 200 test
FACTOR, NOISE = 0.05, 0.3  # paper SM, the same section
MOONS_NOISE = 0.2  # ours; the paper has no moons

Points = NDArray[np.float64]


def circles(n: int, *, factor: float = FACTOR, noise: float = NOISE, key: int) -> tuple[Points, NDArray[Any]]:
    """Return n points (n,2) and labels (n,): an outer unit circle (0), an inner one of radius `factor` (1).

    The definition of scikit-learn's make_circles: equal angles on each circle, shuffled, plus Gaussian noise.
    """
    outer = n // 2
    angle_out = np.linspace(0, 2 * np.pi, outer, endpoint=False)
    angle_in = np.linspace(0, 2 * np.pi, n - outer, endpoint=False)
    ring = np.stack([np.cos(angle_out), np.sin(angle_out)], 1)
    disc = np.stack([np.cos(angle_in), np.sin(angle_in)], 1) * factor
    return _shuffled(ring, disc, noise=noise, key=key)


def moons(n: int, *, noise: float = MOONS_NOISE, key: int) -> tuple[Points, NDArray[Any]]:
    """Return n points (n,2) and labels (n,): two half circles that interleave, as in make_moons."""
    angle_out, angle_in = np.linspace(0, np.pi, n // 2), np.linspace(0, np.pi, n - n // 2)
    upper = np.stack([np.cos(angle_out), np.sin(angle_out)], 1)
    lower = np.stack([1 - np.cos(angle_in), 0.5 - np.sin(angle_in)], 1)
    return _shuffled(upper, lower, noise=noise, key=key)


def _shuffled(first: Points, second: Points, *, noise: float, key: int) -> tuple[Points, NDArray[Any]]:
    generator = numpy_generator(key)
    points = np.concatenate([first, second])
    labels = np.repeat([0, 1], [len(first), len(second)])
    order = generator.permutation(len(points))
    return points[order] + noise * generator.standard_normal(points.shape), labels[order]


def toy(name: str, request: Request) -> DataSet:
    """Return `name` with n points, 60% of them for training, and a validation set drawn apart from both."""
    n, seed = _points(name, request.argument), request.seed
    generate = {"circles": circles, "moons": moons}[name]
    points, labels = generate(n, key=fold(seed, name, "points"))
    held_points, held_labels = generate(max(n // 5, 2), key=fold(seed, name, "validation"))
    train = round(n * TRAIN_SHARE)
    return DataSet(
        name=name,
        train=in_memory(points[:train], labels[:train]),
        validation=in_memory(held_points, held_labels, first_id=n),
        test=in_memory(points[train:], labels[train:], first_id=train),
        classes=("outer", "inner") if name == "circles" else ("upper", "lower"),
        mean=(0.0, 0.0),
        std=(1.0, 1.0),
        source={"generator": name, "points": n, "seed": seed},
    )


def _points(name: str, argument: str) -> int:
    if argument and not (argument.isdecimal() and int(argument) >= 10):
        raise UsageError(f"expected {name}:POINTS with at least 10 points, got {name}:{argument}")
    return int(argument or POINTS)


for _name in ("circles", "moons"):
    DATA.add(
        _name,
        Source(
            build=partial(toy, _name),
            where=lambda places: "generated",
            size="300 + 200 of 2",
            classes=2,
            argument="[POINTS]",
        ),
    )
