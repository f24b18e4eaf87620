"""The figure of SM C: rows of the NFM loss and its approximation, for train and test."""

from __future__ import annotations

import pytest

from nfm.core.noise import Noise
from nfm.errors import UsageError
from nfm.theory import taylor


def test_rows_of_train_and_test_at_the_asked_epochs(untouched_generators: None) -> None:
    rows = taylor(epochs=5, every=3, draws=8)
    assert [(row["epoch"], row["part"]) for row in rows] == [
        (epoch, part) for epoch in (0, 3, 5) for part in ("train", "test")
    ]
    assert {row["n"] for row in rows} == {300, 200}
    assert rows == taylor(epochs=5, every=3, draws=8)
    assert rows != taylor(epochs=5, every=3, draws=8, seed=1)


def test_the_approximation_follows_the_loss_of_weak_mixing() -> None:
    """With little mixing and noise the second order is near; the standard loss alone is not."""
    settings = {"epochs": 8, "every": 8, "draws": 24, "noise": Noise(0.3, 0.1), "alpha": 0.02}
    (_, _, train, test) = taylor(**settings)
    for row in (train, test):
        gap = abs(row["nfm_loss"] - row["approximation"])
        assert gap < 4 * row["nfm_loss_error"] + 0.15 * abs(row["nfm_loss"] - row["standard"])
        assert abs(row["nfm_loss"] - row["standard"]) > 6 * row["nfm_loss_error"]


def test_refusals() -> None:
    with pytest.raises(UsageError, match="epochs, every: expected 1 or more"):
        taylor(epochs=0)
