"""Bars, reliability diagrams, strips and training: the right numbers on the canvas, and refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from measured import make_run
from nfm.errors import UsageError
from nfm.plots import corruption_bars, image_strips, reliability_diagrams, save_figure, training_comparison
from nfm.plots.comparison import compare_one
from nfm.plots.families import by_family, by_severity, corruptions
from nfm.plots.names import name_of
from nfm.report.derived import choose_columns, reliability, shown_examples
from nfm.report.figures import KINDS
from nfm.report.sources import Source, read_sources

pytest.importorskip("matplotlib")


def row(scheme: str, perturbation: str, level: float, accuracy: float, **other: Any) -> dict[str, Any]:
    about = {"n": 500, "protocol": "pixel", "data": "digits", "ids": "ab", "seed": 0, "flags": []}
    found = {"accuracy": accuracy, "lo": accuracy - 0.03, "hi": accuracy + 0.02}
    return about | found | {"scheme": scheme, "perturbation": perturbation, "level": level} | other


ROWS = [
    row(scheme, family, severity, base - severity / 10)
    for scheme, base in (("erm", 0.8), ("nfm", 0.9))
    for family in ("snow", "fog(constants=imagenet)", "gaussian_noise")
    for severity in (1, 2)
]


def test_corruptions_are_averaged_both_ways() -> None:
    comparison = compare_one([*ROWS, row("erm", "white_noise", 0.1, 0.1)])
    assert corruptions(comparison) == ["gaussian_noise", "snow", "fog(constants=imagenet)"]
    family = by_family(comparison, "erm")["snow"]
    assert (family.mean, family.lo, family.hi) == pytest.approx((0.65, 0.62, 0.67))
    assert by_severity(comparison, "nfm")[2].mean == pytest.approx(0.7)
    missing = compare_one([one for one in ROWS if one["scheme"] != "nfm" or one["level"] != 2])
    assert 2 not in by_severity(missing, "nfm")
    assert by_family(missing, "nfm") == {}  # a mean over other severities is no comparison


def test_bars_are_the_means() -> None:
    figure = corruption_bars(ROWS)
    left, right = figure.axes
    heights = [bar.get_height() for bar in left.patches]
    assert heights == pytest.approx([65] * 3 + [75] * 3)
    assert [bar.get_height() for bar in right.patches] == pytest.approx([70, 60, 80, 70])
    names = [text.get_text() for text in left.get_xticklabels()]
    assert names == ["gaussian noise", "snow", "fog (constants=imagenet)"]
    with pytest.raises(UsageError, match="nfm evaluate RUN --suite full"):
        corruption_bars([row("erm", "clean", 0, 0.9)])


def test_names() -> None:
    assert name_of("white_noise") == "white noise  σ"
    assert name_of("pgd7") == "PGD-7 l∞"
    assert name_of("apgd(norm=l2,steps=50)") == "Auto-PGD l2 (steps=50)"
    assert name_of("salt_and_pepper(per=value)") == "salt and pepper (per=value)"


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> list[Source]:
    where = tmp_path_factory.mktemp("runs")
    make_run(where / "a", scheme="erm")
    make_run(where / "b", scheme="nfm", blur=0.3)
    return read_sources([where / "a", where / "b"])


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_drawn(sources: list[Source], kind: str, tmp_path: Path) -> None:
    assert save_figure(KINDS[kind](sources), tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_reliability_is_that_of_the_outcomes(sources: list[Source]) -> None:
    comparison = compare_one([row for source in sources for row in source.rows])
    rows = reliability(comparison, sources, [("white_noise", 0.2)])
    mine = [one for one in rows if one["scheme"] == "nfm"]
    outcomes = sources[1].report.outcomes["white_noise", 0.2]
    assert sum(one["n"] for one in mine) == 60
    right = sum(one["n"] * one["accuracy"] for one in mine)
    assert right == pytest.approx(outcomes.correct.sum())
    assert mine[0]["ece"] == pytest.approx(sources[1].report.row("white_noise", 0.2)["ece"])
    (axes,) = reliability_diagrams(rows).axes
    assert axes.get_title(loc="left") == "σ=0.2"
    assert [text.get_text().split(":")[0] for text in axes.get_legend().get_texts()] == ["erm", "nfm"]
    with pytest.raises(UsageError, match="got none"):
        reliability_diagrams([])


def test_strips_tell_what_each_scheme_takes_an_example_for(sources: list[Source]) -> None:
    comparison = compare_one([row for source in sources for row in source.rows])
    columns = choose_columns(comparison, perturbations=2, levels=3)
    assert columns[:4] == [("clean", 0.0), ("white_noise", 0.1), ("white_noise", 0.2), ("white_noise", 0.3)]
    rows = shown_examples(comparison, sources, columns)
    assert {one["truth"] for one in rows} == {"cat", "dog", "owl"}
    assert all([scheme for scheme, _ in one["told"]] == ["erm", "nfm"] for one in rows)
    assert rows[0]["pixels"].shape == (8, 8, 3)
    strip = sources[0].strip(("clean", 0.0))
    assert strip is not None
    assert np.array_equal(rows[0]["pixels"], strip.images[0].transpose(1, 2, 0))
    figure = image_strips(rows)
    assert len(figure.axes) == 2 * 3 * len(columns)
    with pytest.raises(UsageError, match="examples to show"):
        image_strips([])


def test_a_long_head_stays_above_its_image() -> None:
    shown = {"id": 0, "pixels": np.zeros((8, 8, 3), np.uint8), "truth": "cat", "told": [("erm", "cat")]}
    rows = [
        shown | {"perturbation": name, "level": level}
        for name, level in (("strong", 8 / 255), ("pgd7", 8 / 255))
    ]
    heads = [axes.get_title() for axes in image_strips(rows).axes[:2]]
    assert heads == ["strong attacks\nl∞ ε=8/255", "PGD-7 l∞ ε=8/255"]


def test_training_has_a_line_a_run() -> None:
    rows = [
        {"scheme": scheme, "train_seed": seed, "epoch": epoch, "train_loss": epoch + seed}
        for scheme in ("erm", "nfm")
        for seed in (0, 1)
        for epoch in (0, 1)
    ]
    (axes,) = training_comparison(rows).axes
    assert len(axes.get_lines()) == 4
    assert axes.get_lines()[1].get_ydata().tolist() == [1, 2]
    assert (
        axes.get_lines()[0].get_color() == axes.get_lines()[1].get_color() != axes.get_lines()[2].get_color()
    )
    with pytest.raises(UsageError, match="rows of epochs"):
        training_comparison([])
