"""Figures of studies: boundaries, losses, features and dots are drawn from rows, and refuse none."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nfm.errors import UsageError
from nfm.plots.boundaries import NO_BOUNDARY, boundaries
from nfm.plots.canvas import FAINT, INK, save_figure
from nfm.plots.corruptions import corruption_bars
from nfm.plots.dots import accuracy_dots
from nfm.plots.features import feature_images
from nfm.plots.losses import loss_curves
from nfm.report.png import encode_png
from nfm.reproduce.features import summarise_features
from nfm.reproduce.kinds import show_table
from nfm.reproduce.study import Arm, Line, Scale
from nfm.reproduce.taylor import summarise_taylor


def boundary(scheme: str) -> dict[str, Any]:
    ticks = np.linspace(-2, 2, 11)
    inner = (np.hypot(*np.meshgrid(ticks, ticks)) < 1).astype(int) * 100
    return {
        "scheme": scheme, "extent": 2.0, "side": 11, "inner": inner.flatten().tolist(),
        "points": [[0.0, 0.0], [1.0, 1.0]], "labels": [1, 0], "test_points": [[0.5, 0.5]], "test_labels": [0],
    }  # fmt: skip


def test_boundaries_have_a_panel_a_scheme_and_one_of_the_data(tmp_path: Path) -> None:
    figure = boundaries([boundary("a"), boundary("b")], radius=0.7, captions={"a": "A (90.0%)"}, title="toy")
    titles = [axes.get_title() for axes in figure.axes]
    assert titles[:3] == ["data: 2 training points\nand 1 test points (hollow)", "A (90.0%)", "b"]
    assert sum(len(points.get_offsets()) for points in figure.axes[0].collections) == 3
    assert save_figure(figure, tmp_path / "b.png").stat().st_size > 1000
    solid, dashed, *_ = figure.legends[0].get_lines()
    (best,) = figure.axes[0].get_lines()
    assert (
        (dashed.get_color(), dashed.get_linestyle())
        == (best.get_color(), best.get_linestyle())
        == (FAINT, "--")
    )
    assert (solid.get_color(), solid.get_linestyle()) == (INK, "-")
    assert [text.get_text() for text in figure.legends[0].get_texts()][:2] == [
        "decision boundary", "best possible (Bayes) boundary",
    ]  # fmt: skip
    with pytest.raises(UsageError, match="got none"):
        boundaries([], radius=0.7, captions={}, title="toy")


def test_a_network_without_a_boundary_is_told() -> None:
    dead = boundary("dead") | {"inner": [48] * 121}
    figure = boundaries([boundary("a"), dead], radius=0.7, captions={}, title="toy")
    notes = [[text.get_text() for text in axes.texts] for axes in figure.axes[:3]]
    assert notes == [[], [], [NO_BOUNDARY]]
    figure.canvas.draw()
    frame, note = figure.axes[2].get_window_extent(), figure.axes[2].texts[0].get_window_extent()
    assert frame.contains(note.x0, note.y0)
    assert frame.contains(note.x1, note.y1)


def losses(arm: str) -> list[dict[str, Any]]:
    return [
        {
            "arm": arm, "scheme": arm, "part": part, "epoch": epoch, "train_seed": seed, "standard": 0.5,
            "nfm_loss": 1.0, "approximation": 1.0 + 0.1 * epoch,
        }
        for part in ("train", "test")
        for epoch in (0, 1)
        for seed in (0, 1)
    ]  # fmt: skip


def lines(*names: str) -> list[Line]:
    return [Line(Arm(name, "nfm"), Scale(), "small") for name in names]


def test_losses_are_drawn_and_their_gap_is_told() -> None:
    figure = loss_curves(losses("nfm"), title="losses")
    (curve,) = [line for line in figure.axes[0].get_lines() if "approximation" in str(line.get_label())]
    assert curve.get_ydata().tolist() == [1.0, 1.1]
    assert figure.axes[0].get_ylabel() == "loss"
    assert figure.get_suptitle() == "losses: mean over 2 seeds"
    with pytest.raises(UsageError, match="got none"):
        loss_curves([], title="losses")
    table = summarise_taylor(lines("nfm", "absent"), losses("nfm"))
    (told,) = table["lines"]
    assert told["train"]["mean_gap"] == pytest.approx(0.05)
    assert told["train"]["largest_gap"] == pytest.approx(0.1)
    assert told["seeds"] == 2
    assert "| nfm | train | 0.5000 | 1.0000 | 1.1000 | 5.0 | 10.0 |" in show_table(table)


def test_features_are_shown_by_scheme() -> None:
    png = base64.b64encode(encode_png(np.full((4, 4, 3), 200, np.uint8))).decode()
    rows = [
        {
            "arm": name,
            "scheme": name,
            "place": place,
            "png": png,
            "before": 1.0,
            "after": 3.0,
            "norm_255": 10.0,
        }
        for name in ("erm", "nfm")
        for place in (0, 1)
    ]
    figure = feature_images(rows, title="features")
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["erm", "", "nfm", ""]
    assert all(len(axes.images) == 1 for axes in figure.axes)
    with pytest.raises(UsageError, match="got none"):
        feature_images([], title="features")
    assert "| nfm | 2 | 1.00 | 3.00 | 10 |" in show_table(summarise_features(lines("erm", "nfm"), rows))


def test_dots_have_a_panel_a_cell() -> None:
    rows = [
        {
            "scheme": scheme, "train_seed": 0, "perturbation": name, "level": level, "accuracy": 0.5, "lo": 0.4,
            "hi": 0.6, "protocol": "pixel", "n": 10, "ids": "x", "seed": 0, "data": "d",
        }
        for scheme in ("a", "b")
        for name, level in (("clean", 0.0), ("white_noise", 0.1))
    ]  # fmt: skip
    figure = accuracy_dots(rows, title="dots")
    assert [axes.get_title() for axes in figure.axes] == ["clean", "σ=0.1"]
    assert [text.get_text() for text in figure.axes[0].get_yticklabels()] == ["a", "b"]
    assert figure.get_supxlabel() == "accuracy (%); bar: 95% interval of one model"


def test_bars_tell_what_their_whiskers_and_axes_are() -> None:
    rows = [
        {
            "scheme": "a", "train_seed": seed, "perturbation": "fog", "level": level, "accuracy": 0.5, "lo": 0.4,
            "hi": 0.6, "protocol": "pixel", "n": 10, "ids": "x", "seed": 0, "data": "d",
        }
        for seed in (0, 1)
        for level in (1, 2)
    ]  # fmt: skip
    left, right = corruption_bars(rows, title="bars").axes
    assert left.get_title(loc="left").startswith("whisker: one standard deviation over 2 seeds\n")
    assert (left.get_ylabel(), right.get_xlabel()) == ("accuracy (%)", "severity")


def test_bars_may_be_those_of_one_severity() -> None:
    rows = [
        {
            "scheme": "a", "train_seed": 0, "perturbation": "fog", "level": level, "accuracy": 0.2 * level, "lo": 0.0,
            "hi": 1.0, "protocol": "pixel", "n": 10, "ids": "x", "seed": 0, "data": "d",
        }
        for level in (1, 2, 3)
    ]  # fmt: skip

    def height(severity: float | None) -> float:
        left = corruption_bars(rows, title="bars", severity=severity).axes[0]
        assert ("at severity 3" in left.get_title(loc="left")) == (severity == 3)
        return left.patches[0].get_height()

    assert height(3) == pytest.approx(60)
    assert height(None) == pytest.approx(40)
