"""The generated tasks against scikit-learn's definition."""

import numpy as np
import pytest
from sklearn.datasets import make_circles, make_moons

from nfm.data import load
from nfm.data.toy import circles, moons
from nfm.errors import UsageError


def rows(points: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Points with their labels as rows in a fixed order."""
    table = np.column_stack([labels, points]).round(12) + 0.0
    return table[np.lexsort(table.T)]


@pytest.mark.parametrize("n", [500, 7, 10])
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (
            lambda n: circles(n, factor=0.05, noise=0, key=0),
            lambda n: make_circles(n, factor=0.05, random_state=0),
        ),
        (lambda n: moons(n, noise=0, key=0), lambda n: make_moons(n, random_state=0)),
    ],
    ids=["circles", "moons"],
)
def test_without_noise_the_points_are_scikit_learns(ours, theirs, n: int) -> None:  # type: ignore[no-untyped-def]
    assert np.allclose(rows(*ours(n)), rows(*theirs(n)), atol=1e-9)


def test_another_factor_gives_other_points() -> None:
    other = make_circles(500, factor=0.06, random_state=0)
    assert not np.allclose(rows(*circles(500, noise=0, key=0)), rows(*other), atol=1e-9)


def test_noise_is_gaussian_of_the_asked_deviation() -> None:
    clean, labels = circles(20_000, noise=0, key=4)
    noisy, same = circles(20_000, noise=0.3, key=4)
    assert (labels == same).all()
    noise = (noisy - clean).ravel()
    assert abs(noise.std() - 0.3) < 5 * 0.3 / np.sqrt(2 * len(noise))
    assert abs(noise.mean()) < 5 * 0.3 / np.sqrt(len(noise))


def test_the_papers_sizes_and_any_other() -> None:
    data = load("circles")
    assert [len(part) for part in (data.train, data.validation, data.test)] == [300, 100, 200]
    assert data.shape == (2,)
    assert data.num_classes == 2
    assert len(load("moons:50").train) == 30
    assert not (load("circles", seed=1).train.images == data.train.images).all()
    assert (load("circles").train.images == data.train.images).all()


@pytest.mark.parametrize("name", ["circles:9", "circles:-20", "moons:many"])
def test_other_numbers_of_points_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match="at least 10 points"):
        load(name)
