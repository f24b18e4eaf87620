"""Curves: the right numbers on the canvas, files by suffix, matplotlib's global state as it was."""

from pathlib import Path
from typing import Any

import pytest

from nfm.errors import UsageError
from nfm.plots import curves, save_figure

matplotlib = pytest.importorskip("matplotlib")


def row(scheme: str, perturbation: str, level: float, accuracy: float, **other: Any) -> dict[str, Any]:
    about = {"n": 500, "protocol": "pixel", "data": "digits", "ids": "ab", "seed": 0, "flags": []}
    found = {"accuracy": accuracy, "lo": accuracy - 0.03, "hi": accuracy + 0.02}
    return about | found | {"scheme": scheme, "perturbation": perturbation, "level": level} | other


def rows() -> list[dict[str, Any]]:
    noises = ("white_noise", "salt_and_pepper")
    made = [row("erm", name, level, 0.9 - level) for name in noises for level in (0.2, 0.1)]
    made += [row("nfm", name, 0.1, 0.8 + seed / 10, train_seed=seed) for name in noises for seed in (0, 1)]
    return [row("erm", "clean", 0.0, 0.9), row("nfm", "clean", 0.0, 0.95), *made]


def test_numbers_on_the_canvas() -> None:
    figure = curves(rows())
    white, salt = figure.axes
    erm, nfm = white.get_lines()
    assert erm.get_label() == "erm"
    assert erm.get_xdata().tolist() == [0, 0.1, 0.2]
    assert erm.get_ydata().tolist() == pytest.approx([90, 80, 70])
    assert nfm.get_ydata().tolist() == pytest.approx([95, 85])
    band = white.collections[0].get_paths()[0].vertices
    assert band[:, 1].min() == pytest.approx(67)  # lo of erm at 0.2
    assert white.get_ylabel() == "accuracy (%)"
    assert "white noise" in white.get_xlabel()
    assert "salt and pepper" in salt.get_xlabel()
    assert "over 2 seeds" in white.get_title(loc="left")
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["erm", "nfm"]


@pytest.mark.parametrize(("suffix", "magic"), [(".png", b"\x89PNG"), (".svg", b"<?xml"), (".pdf", b"%PDF")])
def test_files_by_suffix_and_the_same_bytes_twice(suffix: str, magic: bytes, tmp_path: Path) -> None:
    contents = [
        save_figure(curves(rows()), tmp_path / name).read_bytes() for name in (f"a{suffix}", f"b{suffix}")
    ]
    assert contents[0].startswith(magic)
    assert contents[0] == contents[1]


def test_matplotlibs_global_state_is_left_alone(tmp_path: Path) -> None:
    from matplotlib import _pylab_helpers

    before, backend = dict(matplotlib.rcParams), matplotlib.get_backend(auto_select=False)
    save_figure(curves(rows()), tmp_path / "a.svg")
    assert dict(matplotlib.rcParams) == before
    assert matplotlib.get_backend(auto_select=False) == backend
    assert not _pylab_helpers.Gcf.figs


def test_more_schemes_than_colours_are_told_apart() -> None:
    measured = [row(f"s{place}", "white_noise", level, 0.5) for place in range(18) for level in (0.1, 0.2)]
    drawn = curves(measured).axes[0].get_lines()
    assert len({(line.get_color(), line.get_linestyle()) for line in drawn}) == len(drawn) == 18


def test_an_axis_of_an_attack_tells_norm_unit_and_255ths() -> None:
    levels = {"pgd7": (0.003922, 0.007843), "pgd7(norm=l2)": (0.05, 0.1)}  # as studies round them
    attacked = [row("erm", name, level, 0.5) for name in levels for level in levels[name]]
    linf, l2 = curves([row("erm", "clean", 0.0, 0.9), *attacked]).axes
    assert linf.get_xlabel() == "ε of PGD-7 l∞, in pixels of [0, 1]"
    assert [text.get_text() for text in linf.get_xticklabels()] == ["0", "1/255", "2/255"]
    assert l2.get_xlabel() == "ε of PGD-7 l2, in pixels of [0, 1]"
    assert not any("/255" in text.get_text() for text in l2.get_xticklabels())


def test_refusals(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="two levels"):
        curves(rows()[:1])
    with pytest.raises(UsageError, match="different protocol"):
        curves([*rows(), row("erm", "clean", 0.0, 0.9, protocol="authors")])
    with pytest.raises(UsageError, match=r"ends in \.png"):
        save_figure(curves(rows()), tmp_path / "a.gif")


@pytest.mark.parametrize(("length", "columns"), [(3, 4), (24, 3), (40, 2), (200, 1)])
def test_a_legend_has_as_many_columns_as_fit(length: int, columns: int) -> None:
    panels = [(name, level) for name in ("white_noise", "salt_and_pepper") for level in (0.1, 0.2)]
    figure = curves([row(f"{number:0{length}}", *panel, 0.9) for number in range(5) for panel in panels])
    (legend,) = figure.legends
    assert legend._ncols == columns
    assert bool(legend.get_window_extent().width <= figure.bbox.width) == (length < 200)
