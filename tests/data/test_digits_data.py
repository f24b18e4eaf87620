"""scikit-learn's digits, split."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from nfm.data import load
from nfm.data.digits import read_digits
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


def test_the_file_is_read_as_scikit_learn_reads_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    read = read_digits()
    monkeypatch.setattr("nfm.data.digits._installed", lambda: tmp_path)  # where there is no such file
    loaded = read_digits()
    assert torch.equal(read.images, loaded.images)
    assert torch.equal(read.labels, loaded.labels)
    assert (read.images.dtype, read.labels.dtype) == (loaded.images.dtype, loaded.labels.dtype)
    (tmp_path / "datasets" / "data").mkdir(parents=True)
    np.savetxt(tmp_path / "datasets" / "data" / "digits.csv.gz", np.ones((3, 65)), delimiter=",")
    assert read_digits().images.unique().tolist() == [16]


def test_digits_are_read_without_importing_scikit_learn() -> None:
    program = "import sys, nfm.data; nfm.data.load('digits'); print('sklearn' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert told.stdout == "False\n"


def test_each_part_has_the_classes_in_equal_shares() -> None:
    data = load("digits")
    for part in (data.train, data.validation, data.test):
        share = torch.bincount(part.labels) / len(part)
        assert (share - 0.1).abs().max() < 0.01


def test_digits_without_scikit_learn_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nfm.data.digits.find_spec", lambda name: None)
    with pytest.raises(EnvironmentProblem, match=r"noisy-feature-mixup\[data\]"):
        load("digits")
