"""scikit-learn's digits, split."""

import sys

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from nfm.data import load
from nfm.errors import EnvironmentProblem


def test_digits_are_split_without_overlap_and_the_test_part_is_fixed() -> None:
    first, second = load("digits", seed=0), load("digits", seed=1)
    assert [len(part) for part in (first.train, first.validation, first.test)] == [1000, 197, 600]
    ids = torch.cat([first.train.ids, first.validation.ids, first.test.ids])
    assert sorted(ids.tolist()) == list(range(1797))
    assert torch.equal(first.test.ids, second.test.ids)
    assert not torch.equal(first.train.ids, second.train.ids)


def test_pixels_and_labels_are_scikit_learns() -> None:
    data, source = load("digits"), load_digits()
    for part in (data.train, data.validation, data.test):
        levels = part.images.numpy()[:, 0] / 255 * 16  # type: ignore[attr-defined]
        assert np.abs(levels - source.images[part.ids.numpy()]).max() < 16 / 255
        assert (part.labels.numpy() == source.target[part.ids.numpy()]).all()


def test_each_part_has_the_classes_in_equal_shares() -> None:
    data = load("digits")
    for part in (data.train, data.validation, data.test):
        share = torch.bincount(part.labels) / len(part)
        assert (share - 0.1).abs().max() < 0.01


def test_digits_without_scikit_learn_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(EnvironmentProblem, match=r"noisy-feature-mixup\[data\]"):
        load("digits")
