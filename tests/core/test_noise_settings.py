"""Noise: what it takes, what it refuses, and what it says of itself."""

from __future__ import annotations

import dataclasses
import math

import pytest

import nfm
from nfm.errors import UsageError


def test_the_default_is_the_papers_equation() -> None:
    assert nfm.Noise(0.4, 0.2) == nfm.Noise.paper(0.4, 0.2)
    noise = nfm.Noise(0.4, 0.2)
    assert (noise.add_law, noise.mult_law, noise.add_scale, noise.mult_scale) == (
        "gaussian", "gaussian", "fixed", "fixed",
    )  # fmt: skip


def test_the_authors_noise_is_another_one() -> None:
    noise = nfm.Noise.authors(0.4, 0.2)
    assert (noise.add_law, noise.mult_law, noise.add_scale, noise.mult_scale) == (
        "gaussian", "uniform", "beta", "beta",
    )  # fmt: skip
    assert noise != nfm.Noise(0.4, 0.2)


def test_the_repr_tells_the_effective_strength() -> None:
    assert repr(nfm.Noise(0.4, 0.2)) == "Noise(add=0.4, mult=0.2; rms 0.4, 0.2)"
    assert "beta-scaled" in repr(nfm.Noise.authors(0.4, 0.2))
    assert "rms 0.131, 0.0378" in repr(nfm.Noise.authors(0.4, 0.2))
    every = nfm.Noise(0.4, 0.2, sparsity=0.5, granularity="channel", relative=True)
    assert (
        repr(every)
        == "Noise(add=0.4, mult=0.2, sparsity=0.5, granularity=channel, relative; rms 0.283, 0.141)"
    )


@pytest.mark.parametrize("level", [-0.1, math.nan, math.inf, "0.4", None, True])
@pytest.mark.parametrize("name", ["add", "mult"])
def test_bad_levels_are_refused(name: str, level: object) -> None:
    with pytest.raises(UsageError, match=rf"noise\.{name}: expected a finite level, 0 or greater"):
        nfm.Noise(**{name: level})


def test_multiplicative_levels_above_1_are_allowed_with_a_warning() -> None:
    with pytest.warns(UserWarning, match="turns the sign"):
        assert nfm.Noise(mult=1.5).rms() == (0.0, 1.5)
    nfm.Noise(add=1.5, mult=1.0)


@pytest.mark.parametrize("relative", ["no", 1, None])
def test_a_switch_is_true_or_false(relative: object) -> None:
    with pytest.raises(UsageError, match=r"noise\.relative: expected True or False"):
        nfm.Noise(0.4, relative=relative)  # type: ignore[arg-type]
    assert nfm.Noise(0.4, relative=True).relative


@pytest.mark.parametrize("sparsity", [-0.1, 1.0, math.nan, "half"])
def test_bad_sparsity_is_refused(sparsity: object) -> None:
    with pytest.raises(UsageError, match=r"noise\.sparsity"):
        nfm.Noise(0.4, sparsity=sparsity)


@pytest.mark.parametrize(
    ("setting", "value", "nearest"),
    [
        ("add_law", "gausian", "gaussian"),
        ("mult_law", "unifrom", "uniform"),
        ("add_scale", "bta", "beta"),
        ("mult_scale", "fix", "fixed"),
        ("granularity", "chanel", "channel"),
    ],
)
def test_unknown_names_list_the_known_and_the_nearest(setting: str, value: str, nearest: str) -> None:
    with pytest.raises(UsageError, match=rf"noise\.{setting}: expected one of .*did you mean '{nearest}'"):
        nfm.Noise(0.4, **{setting: value})


def test_settings_are_frozen_and_keyword_only_where_they_are_rare() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        nfm.Noise(0.4).add = 0.5
    with pytest.raises(TypeError):
        nfm.Noise(0.4, 0.2, "gaussian", "gaussian", "fixed", "fixed", 0.5)


def test_silence() -> None:
    assert nfm.Noise().silent
    assert not nfm.Noise(0.1).silent
    assert not nfm.Noise(0.0, 0.1).silent
