"""What is searched: the settings a scheme has, and nothing that would make it another scheme."""

from __future__ import annotations

import dataclasses

import pytest

from nfm.config.build import build_method
from nfm.config.schema import Config, MethodConfig
from nfm.errors import SiteError, UsageError
from nfm.models import build
from nfm.tune.space import Choice, Range, Space, apply, find_space

NETWORK = build("small_conv", num_classes=10, in_channels=1, image_size=8, width=0.125)


def space(scheme: str, **settings: object) -> Space:
    return find_space(MethodConfig(scheme=scheme, **settings), NETWORK)  # type: ignore[arg-type]


def test_nfm_has_levels_alpha_and_sites_around_its_own() -> None:
    found = space("nfm")
    assert found.start == {"noise.add": 0.4, "noise.mult": 0.2, "alpha": 1.0, "sites": "input,stage1,stage2"}
    assert found.ranges["noise.add"] == Range(0.0, pytest.approx(1.2))
    assert found.ranges["alpha"] == Range(0.1, 4.0, log=True)
    assert found.ranges["sites"] == Choice(
        ("input", "input,stage1", "input,stage1,stage2", "stage1,stage2", "stage2", "stage1")
    )


@pytest.mark.parametrize(
    ("scheme", "searched"),
    [
        ("nfm", {"noise.add", "noise.mult", "alpha", "sites"}),
        ("nfm + label_smoothing", {"noise.add", "noise.mult", "alpha", "sites"}),
        ("noisymix", {"noise.add", "noise.mult", "alpha", "sites"}),
        ("noise_injection", {"noise.add", "noise.mult", "sites"}),
        ("noisy_mixup", {"noise.add", "noise.mult", "alpha"}),
        ("noise_injection_authors", {"noise.add"}),
    ],
)
def test_a_scheme_stays_what_it_is(scheme: str, searched: set[str]) -> None:
    assert set(space(scheme).ranges) == searched


def test_the_recipe_says_where_to_begin() -> None:
    found = space("nfm", noise={"add": 0.8}, alpha=8.0, sites=("stage*",))
    assert found.start == {
        "noise.add": 0.8, "noise.mult": 0.2, "alpha": 8.0, "sites": "stage1,stage2,stage3",
    }  # fmt: skip
    assert found.ranges["alpha"] == Range(0.1, 8.0, log=True)
    assert found.ranges["noise.add"] == Range(0.0, pytest.approx(2.4))


@pytest.mark.parametrize(
    "scheme", ["cutmix", "puzzlemix", "erm", "mixup", "manifold_mixup", "nfm | noisy_mixup"]
)
def test_a_scheme_without_one_noise_is_refused_with_those_that_have_it(scheme: str) -> None:
    with pytest.raises(
        UsageError, match=r"expected one part with noise.*choose one of noise_injection, .*nfm"
    ):
        space(scheme)


def test_noise_that_the_recipe_gives_is_noise() -> None:
    assert set(space("mixup", noise={"add": 0.4}).ranges) == {"noise.add", "alpha"}


def test_an_unknown_site_is_refused() -> None:
    with pytest.raises(SiteError, match="no site 'stage9'"):
        space("nfm", sites=("stage9",))


def test_settings_change_the_scheme_and_nothing_else() -> None:
    config = Config(method=MethodConfig(noise={"add": 0.7, "sparsity": 0.5}))
    changed = apply(config, {"noise.add": 0.1, "alpha": 0.5, "sites": "input,stage2"})
    method = build_method(changed.method, seed=0)
    assert (method.alpha, method.sites) == (0.5, ("input", "stage2"))
    assert (method.noise.add, method.noise.mult, method.noise.sparsity) == (0.1, 0.2, 0.5)
    assert dataclasses.replace(changed, method=config.method) == config


def test_proposals_are_rounded_within_their_range() -> None:
    found = Space({"alpha": Range(0.123456, 4.0, log=True), "sites": Choice(("input",))}, {})
    assert found.tidy({"alpha": 1.23456789, "sites": "input"}) == {"alpha": 1.235, "sites": "input"}
    assert found.tidy({"alpha": 0.123456}) == {"alpha": 0.1235}
    assert Range(0.0, 1 / 3).tidy(0.33333) == 0.3333
    assert Range(0.66666, 1.0).tidy(0.66666) == 0.6667
    assert Range(0.0, 0.66666).tidy(0.66666) == 0.66666
