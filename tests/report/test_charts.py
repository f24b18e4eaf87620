"""Charts: round axes, points where they belong, bars as long as their numbers, pixels as they were."""

from __future__ import annotations

import base64
import io
import re

import numpy as np
import pytest
from pages import Page

from nfm.plots.comparison import Estimate
from nfm.report.axes import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, Axis, round_axis, round_step
from nfm.report.bars import NAMES, SCALE, bars
from nfm.report.chart import SHAPES, Panel, Point, Series, draw, legend
from nfm.report.derived import spread_out
from nfm.report.history import training_curves
from nfm.report.png import data_address, encode_png

X, Y = round_axis([0, 10], "x"), round_axis([0, 100], "y")


@pytest.mark.parametrize("span", [1e-6, 0.03, 0.9, 1, 7.3, 55, 100, 12345.0])
def test_axes_cover_their_values_with_a_few_round_ticks(span: float) -> None:
    values = [0.13 * span, 0.4 * span, span]
    axis = round_axis(values, "x")
    assert axis.low <= min(values)
    assert axis.high >= max(values)
    assert 4 <= len(axis.ticks) <= 9
    assert re.fullmatch(r"[125]e[+-]\d+", f"{round_step(span):e}".replace(".000000", ""))


def test_an_axis_may_be_told_its_ends_and_survives_a_single_value() -> None:
    assert round_axis([37, 60], "y", high=100.0).high == 100
    assert round_axis([2.2], "y", low=0.0).low == 0
    single = round_axis([5, 5], "x")
    assert single.low < single.high
    assert round_axis([], "x").low == 0


def test_points_are_where_they_belong() -> None:
    points = tuple(Point(x, y, f"at {x}", f"{y}", y - 5, y + 5) for x, y in ((0, 0), (5, 50), (10, 100)))
    page = Page(draw(Panel("title", X, Y, (Series(2, points),))))
    assert page.values("data-x") == [f"{LEFT:g}", f"{(LEFT + WIDTH - RIGHT) / 2:g}", f"{WIDTH - RIGHT:g}"]
    assert page.values("data-y") == [f"{HEIGHT - BOTTOM:g}", f"{(HEIGHT - BOTTOM + TOP) / 2:g}", f"{TOP:g}"]
    assert page.values("data-scheme") == ["2"]
    assert page.inside["title"] == ["at 0: 0", "at 5: 50", "at 10: 100"]
    line, band = (
        next(value for tag, name, value in page.attributes if name == "d" and value.count("L") == n)
        for n in (2, 5)
    )
    assert line.startswith(f"M{LEFT:g},{HEIGHT - BOTTOM:g}L")
    assert band.endswith("Z")
    heights = [float(y) for y in re.findall(r",([\d.]+)", band)]
    assert min(heights) >= TOP  # a band does not leave the frame
    assert max(heights) <= HEIGHT - BOTTOM


def test_a_line_without_bands_and_a_single_point() -> None:
    bare = Page(draw(Panel("t", X, Y, (Series(0, (Point(1, 1, "a", "b"),), dashed=True),))))
    assert "band" not in bare.values("class")
    assert "line dashed" not in bare.values("class")
    two = Page(
        draw(Panel("t", X, Y, (Series(0, (Point(1, 1, "a", "b"), Point(2, 2, "a", "b")), dashed=True),)))
    )
    assert "line dashed" in two.values("class")


def test_more_schemes_than_colours_still_have_keys() -> None:
    page = Page(legend([f"scheme {place}" for place in range(9)]))
    assert page.values("data-scheme") == [str(place) for place in range(9)]
    assert "key s1" in page.values("class")
    assert len(SHAPES) == 7


def test_bars_are_as_long_as_their_numbers() -> None:
    found = [
        {"fog": Estimate(0.5, 0.4, 0.6, None, 1), "snow": Estimate(1.0, 0.9, 1.2, None, 1)},
        {"fog": Estimate(0.2, -0.1, 0.3, 0.1, 2)},
    ]
    page = Page(bars("t", [("fog", "fog"), ("snow", "snow")], found, [0, 3]))
    widths = [float(value) for tag, name, value in page.attributes if tag == "rect" and name == "width"]
    assert widths == pytest.approx([50 * SCALE, 100 * SCALE, 20 * SCALE])
    ends = [float(value) for tag, name, value in page.attributes if name in ("x1", "x2")]
    assert min(ends) >= NAMES
    assert max(ends) <= NAMES + 100 * SCALE + 1e-6
    assert page.values("data-tip")[0] == "50.0 [40.0, 60.0]"


@pytest.mark.parametrize("shape", [(5, 7, 1), (8, 8, 3)])
def test_pixels_survive_the_png(shape: tuple[int, ...]) -> None:
    from PIL import Image

    pixels = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    read = np.asarray(Image.open(io.BytesIO(encode_png(pixels))))
    assert np.array_equal(read.reshape(shape), pixels)
    address = data_address(pixels)
    assert base64.b64decode(address.partition(",")[2]) == encode_png(pixels)


def test_places_are_spread_out() -> None:
    assert spread_out(100, 4) == [24, 49, 74, 99]
    assert spread_out(3, 9) == [0, 1, 2]
    assert spread_out(0, 3) == []
    assert spread_out(1, 1) == [0]


def test_training_is_the_mean_over_seeds() -> None:
    rows = [
        {
            "scheme": "erm",
            "train_seed": seed,
            "epoch": epoch,
            "train_loss": epoch + seed,
            "probe_accuracy": None,
        }
        for seed in (0, 2)
        for epoch in range(3)
    ]
    made = training_curves(rows, ["erm"])
    assert made is not None
    page = Page(made)
    assert page.values("data-tip") == ["1", "2", "3"]
    assert page.values("data-at") == ["epoch 1", "epoch 2", "epoch 3"]
    assert page.inside["figcaption"] == ["training loss (mixed)"]
    assert training_curves([], []) is None


def test_an_axis_of_no_width_divides_by_nothing() -> None:
    assert Axis(1, 1, (), "").x(1) == LEFT
