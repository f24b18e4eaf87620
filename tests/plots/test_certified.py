"""Curves and tables of certified accuracy: from rows alone, and only of what may be compared."""

from __future__ import annotations

import pytest

from nfm.errors import UsageError
from nfm.plots.certified import certified_curves, certified_table
from nfm.results import Row


def curve(scheme: str = "nfm", sigma: float = 0.25, **changed: object) -> list[Row]:
    about = {
        "scheme": scheme,
        "sigma": sigma,
        "data": "digits",
        "unit": "l2",
        "alpha": 0.001,
        "draws": 100,
        "n": 4,
    }
    points = [(0.0, 0.75), (0.2, 0.5), (0.6, 0.0)]
    return [
        about | {"radius": r, "accuracy": share, "lo": max(0, share - 0.1), "hi": share + 0.1} | changed
        for r, share in points
    ]


def test_each_scheme_and_sigma_has_a_line() -> None:
    rows = [*curve(), *curve("erm"), *curve(sigma=0.5), *curve(train_seed=2)]
    (axes,) = certified_curves(rows).axes
    lines = {line.get_label(): line for line in axes.get_lines()}
    assert set(lines) == {"nfm, σ=0.25", "erm, σ=0.25", "nfm, σ=0.5", "nfm (seed 2), σ=0.25"}
    assert list(lines["erm, σ=0.25"].get_xdata()) == [0.0, 0.2, 0.6]
    assert list(lines["erm, σ=0.25"].get_ydata()) == [75, 50, 0]
    assert axes.get_xlabel() == "radius (l2)"


def test_two_networks_of_one_scheme_are_told_apart() -> None:
    rows = [*curve(model="aaaabbbbcccc"), *curve(model="ddddeeeeffff"), *curve("erm", model="x")]
    names = [line.get_label() for line in certified_curves(rows).axes[0].get_lines()]
    assert names == ["erm, σ=0.25", "nfm aaaabbbb, σ=0.25", "nfm ddddeeee, σ=0.25"]
    summary = {"abstained": 0.0, "mean_radius": 0.1}
    text = certified_table([(curve(model=name), summary, []) for name in ("aaaabbbb", "ddddeeee")])
    assert [line.split("  ")[0] for line in text.splitlines()[4:]] == ["nfm aaaabbbb", "nfm ddddeeee"]


@pytest.mark.parametrize(
    ("key", "value"), [("data", "cifar10"), ("unit", "linf"), ("alpha", 0.05), ("draws", 9)]
)
def test_what_may_not_be_compared_is_refused(key: str, value: object) -> None:
    with pytest.raises(UsageError, match=f"expected rows of one {key}"):
        certified_curves([*curve(), *curve("erm", **{key: value})])
    with pytest.raises(UsageError, match="got none"):
        certified_curves([])


def test_table() -> None:
    text = certified_table([(curve(), {"abstained": 0.25, "mean_radius": 0.3}, ["few"])])
    head, line = text.splitlines()[2], text.splitlines()[4]
    assert head.split() == ["scheme", "σ", "n", "r>0", "r>0.2", "r>0.6", "abstained", "mean", "radius"]
    assert line.split()[:4] == ["nfm", "0.25", "4", "75.0"]
    assert line.split()[-2:] == ["25.0", "0.3"]
    assert text.splitlines()[-1] == "note: few"
