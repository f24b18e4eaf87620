"""Requests that cannot be met are refused with what was expected: options, levels, data; few classes are no such."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import TensorDataset

import nfm
from nfm.cli.levels import parse_levels
from nfm.data.examples import Examples
from nfm.errors import DataError, UsageError
from nfm.evaluate import (
    APGD,
    ATTACKS,
    PERTURBATIONS,
    PGD,
    Blur,
    Cell,
    Clean,
    Occlusion,
    SaltAndPepper,
    Shot,
    Strong,
    cells,
)
from nfm.randomness import torch_generator

WEIGHTS = torch.randn(192, 10, generator=torch_generator(0))


def make(n: int = 20, classes: int = 10) -> Examples:
    images = torch.randint(0, 256, (n, 3, 8, 8), generator=torch_generator(1)).to(torch.uint8)
    labels = linear(images.float() / 255, classes).argmax(1)
    return Examples(images, labels, torch.arange(n))


def linear(x: Tensor, classes: int = 10) -> Tensor:
    return (x.flatten(1) - 0.5) @ WEIGHTS[:, :classes]


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("pgd", {"steps": 2.5}, "a whole number for steps, got 2.5"),
        ("pgd", {"steps": "abc"}, "a whole number for steps, got 'abc'"),
        ("pgd", {"steps": True}, "a whole number for steps"),
        ("pgd", {"step": "wide"}, "a number for step"),
        ("pgd", {"restarts": 1.5}, "a whole number for restarts"),
        ("pgd", {"random_start": "maybe"}, "true or false for random_start"),
        ("pgd", {"norm": 2}, "a name for norm"),
        ("apgd", {"steps": 3.5}, "a whole number for steps"),
        ("square", {"queries": 10.5}, "a whole number for queries"),
        ("strong", {"targets": 1.5}, "a whole number for targets"),
        ("occlusion", {"fill": 7}, "a fill from 0"),
        ("occlusion", {"fill": "grey"}, "a number for fill"),
    ],
)
def test_options_of_another_kind(name: str, options: dict[str, Any], expected: str) -> None:
    known: dict[str, Any] = {key: registry[key] for registry in (ATTACKS, PERTURBATIONS) for key in registry}
    with pytest.raises(UsageError, match=f"{name}: expected {expected}"):
        known[name](**options)


def test_options_of_the_right_kind() -> None:
    steps: Any = np.int64(9)
    assert PGD(steps=steps, step=1, random_start=False).label == "pgd(steps=9,step=1,random_start=False)"
    assert Occlusion(fill=0).fill == 0
    assert SaltAndPepper(per="value").per == "value"


def test_words_of_levels() -> None:
    assert parse_levels(["pgd(steps=5, norm=l2)=0.5"])[1:] == cells(PGD("l2", steps=5), [0.5])
    with pytest.raises(UsageError, match="a whole number for steps, got 'abc'"):
        parse_levels(["pgd(steps=abc)=0.1"])
    with pytest.raises(UsageError, match="OPTION=VALUE"):
        parse_levels(["pgd(steps)=0.1"])


@pytest.mark.parametrize("change", [Blur(), Shot()])
def test_levels_that_cannot_be_computed_with(change: Blur | Shot) -> None:
    x = make().images.float() / 255
    for level in (1e-200, 1e-30, 1e200):
        with pytest.raises(UsageError, match="from 1e-06 to 1e"):
            cells(change, [level])
    for level in (1e-6, 1e6):
        assert change(x, torch.arange(len(x)), level, seed=0).isfinite().all()


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_strong_attacks_few_classes(classes: int, norm: str) -> None:
    def model(x: Tensor) -> Tensor:
        return linear(x, classes)

    strong = Strong(norm, steps=3, targets=2, queries=3)
    eps = 8 / 255 if norm == "linf" else 0.5
    report = nfm.evaluate(
        model, make(40, classes), [*cells(strong, [eps]), *cells(APGD(norm, steps=3), [eps])]
    )
    assert report.rows[0]["accuracy"] <= report.rows[1]["accuracy"] < 1
    with pytest.raises(UsageError, match="at least 4 classes"):
        nfm.evaluate(model, make(40, classes), cells(APGD(norm, loss="dlr_targeted"), [eps]))


@pytest.mark.parametrize("suite", ["quick", [Cell(Clean(), 0.0)]], ids=["bundle", "cells"])
def test_data_that_cannot_be_measured(suite: Any) -> None:
    held = make()
    wrong: list[tuple[Any, type[Exception], str]] = [
        (replace(held, images=held.images.float()), UsageError, r"pixels in \[0, 1\]"),
        (held.subset(torch.arange(0)), DataError, "an empty set"),
        ((held.images, held.labels), UsageError, r"Examples\(images, labels, ids\), got tuple"),
        (TensorDataset(held.images, held.labels), UsageError, "got TensorDataset"),
    ]
    for data, error, message in wrong:
        with pytest.raises(error, match=message):
            nfm.evaluate(linear, data, suite)
    assert nfm.evaluate(linear, held, suite).rows[0]["accuracy"] == 1


@pytest.mark.parametrize("size", ["4", 2.5, 0])
def test_batch_sizes(size: Any) -> None:
    with pytest.raises(UsageError, match="batch_size: expected a whole number from 1 up"):
        nfm.evaluate(linear, make(), "quick", batch_size=size)


def test_what_is_left_out_of_a_bundle_is_told() -> None:
    vectors = replace(make(), images=make().images.flatten(1).float() / 255)
    with pytest.warns(UserWarning, match="left out of 'paper': .*expected images"):
        report = nfm.evaluate(linear, vectors, "paper")
    assert report.row("clean", 0)["accuracy"] == 1
