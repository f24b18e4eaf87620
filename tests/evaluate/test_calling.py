"""`nfm.evaluate` is a package and can be called; both ways in work, whichever comes first."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from types import ModuleType

import pytest
import torch
from torch import Tensor

import nfm
from nfm.data import DataSet, load
from nfm.data.examples import empty_like
from nfm.errors import UsageError
from nfm.evaluate import SUITES, WhiteNoise, cells, evaluate, fitting
from nfm.evaluate.protocols import Authors, Pixel

WEIGHTS = torch.randn(64, 10, generator=torch.Generator().manual_seed(0))


def linear(x: Tensor) -> Tensor:
    return x.flatten(1) @ WEIGHTS


@pytest.fixture(scope="module")
def digits() -> DataSet:
    return load("digits")


def test_both_ways_in() -> None:
    first = (
        "import nfm; call = nfm.evaluate; from nfm.evaluate.pgd import PGD; import nfm.evaluate as package"
    )
    code = f"{first}; print(callable(call), call is package is nfm.evaluate, call.PGD is PGD)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert told.stdout.split() == ["True"] * 3, told.stderr


def test_a_call_measures_the_test_part(digits: DataSet) -> None:
    report = nfm.evaluate(linear, digits, "quick", seed=3)
    assert isinstance(nfm.evaluate, ModuleType)
    same = evaluate(linear, digits.test, SUITES["cifar"], seed=3, held_out=digits.validation)
    assert report.identity == same.identity
    assert [row["accuracy"] for row in report.rows] == [row["accuracy"] for row in same.rows]
    assert {row["data"] for row in report.rows} == {"digits"}
    assert report.identity["temperature"] is not None


def test_examples_alone_and_data_without_validation_fit_no_temperature(digits: DataSet) -> None:
    alone = nfm.evaluate(linear, digits.test, cells(WhiteNoise(), [0.1]))
    without = nfm.evaluate(
        linear, replace(digits, validation=empty_like(digits.train)), cells(WhiteNoise(), [0.1])
    )
    assert alone.identity == without.identity
    assert alone.identity["temperature"] is None


def test_a_bundle_is_thinned_out_by_the_protocol_and_says_so(digits: DataSet) -> None:
    grey = Authors(nfm.evaluate.Normalisation((0.3,), (0.4,)))
    kept, left_out = fitting("paper", grey, digits.test)
    assert {cell.perturbation.name for cell in kept} == {"clean", "white_noise", "salt_and_pepper"}
    assert any("pgd7" in reason for reason in left_out)
    everything, nothing = fitting("quick", Pixel(), digits.test)
    assert (everything, nothing) == (SUITES["cifar"], [])


def test_vectors_get_what_needs_no_image() -> None:
    circles = load("circles")
    pixels = replace(circles.test, images=circles.test.images.clamp(0, 1))
    kept, left_out = fitting("full", Pixel(), pixels)
    names = {cell.perturbation.name for cell in kept}
    assert {"white_noise", "pgd7"} <= names
    assert not names & {"square", "strong", "blur", "occlusion"}
    assert len(left_out) >= 4


def test_what_is_asked_for_by_its_own_name_is_refused_not_left_out(digits: DataSet) -> None:
    with pytest.raises(UsageError, match="use protocol 'pixel'"):
        nfm.evaluate(linear, digits, "attacks", protocol="authors")
