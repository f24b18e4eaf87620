"""The picture and the table of the theory's meter, from rows alone."""

from __future__ import annotations

import pytest

from nfm.errors import UsageError
from nfm.plots.theory import theory_curves, theory_table


def row(run: str, epoch: int, site: str, value: float, **other: object) -> dict[str, object]:
    names = (
        "jacobian_norm",
        "r1",
        "r2",
        "r2_add",
        "r2_mult",
        "r2_total",
        "r3_total",
        "eps_mix",
        "margin",
        "error",
    )
    measured = dict.fromkeys(names, value)
    return (
        {"kind": "theory", "run": run, "epoch": epoch, "site": site, "noise": "a", "alpha": 1, "n": 8}
        | measured
        | other
    )


ROWS = [row(run, epoch, site, value) for run, value in (("erm", 1.0), ("nfm", 2.0))
        for epoch in (0, 5) for site in ("input", "stage1")]  # fmt: skip


def test_a_line_a_run_the_mean_over_sites() -> None:
    rows = [*ROWS, row("nfm", 5, "stage1", 4.0)]  # the newest row of an epoch counts
    figure = theory_curves(rows)
    assert len(figure.axes) == 5
    erm, nfm = figure.axes[0].get_lines()
    assert (list(erm.get_xdata()), list(erm.get_ydata())) == ([0, 5], [1.0, 1.0])
    assert list(nfm.get_ydata()) == [2.0, 3.0]


def test_one_epoch_is_drawn_by_site() -> None:
    rows = [
        row(run, 3, site, value)
        for run in ("erm", "nfm")
        for site, value in (("input", 1.0), ("stage1", 2.0))
    ]
    axes = theory_curves(rows).axes[0]
    assert axes.get_xlabel() == "site (epoch 3)"
    assert [label.get_text() for label in axes.get_xticklabels()] == ["input", "stage1"]
    assert [list(line.get_ydata()) for line in axes.get_lines()] == [[1.0, 2.0]] * 2
    assert theory_curves([*rows, row("erm", 4, "input", 1.0)]).axes[0].get_xlabel() == "epoch"


def test_sites_stay_in_their_order() -> None:
    rows = [row("erm", 3, site, 1.0) for site in ("input", "hidden1", "hidden10")]
    assert [line.split()[2] for line in theory_table(rows).splitlines()[2:]] == [
        "input",
        "hidden1",
        "hidden10",
    ]


def test_epochs_are_whole_numbers() -> None:
    rows = [row("erm", epoch, "input", 1.0) for epoch in (0, 1)]
    ticks = theory_curves(rows).axes[0].get_xticks()
    assert all(tick == round(tick) for tick in ticks)


def test_a_run_without_a_margin_is_in_the_legend() -> None:
    rows = [one | {"margin": None} if one["run"] == "erm" else one for one in ROWS]
    (legend,) = theory_curves(rows).legends
    assert [text.get_text() for text in legend.get_texts()] == ["erm", "nfm"]


def test_what_was_not_measured_has_no_panel() -> None:
    rows = [{**one, "margin": None} for one in ROWS]
    assert len(theory_curves(rows).axes) == 4
    assert theory_table(rows).splitlines()[2].split()[-2] == "-"


def test_the_table_has_the_last_epoch_of_each_site() -> None:
    lines = theory_table(ROWS).splitlines()[2:]
    assert [line.split()[:4] for line in lines] == [
        [run, "5", site, value] for run, value in (("erm", "1"), ("nfm", "2")) for site in ("input", "stage1")
    ]  # fmt: skip


def test_refusals() -> None:
    with pytest.raises(UsageError, match="expected rows of the theory's meter, got none"):
        theory_curves([{"kind": "epoch"}])
    with pytest.raises(UsageError, match="expected rows with the same noise, alpha, n"):
        theory_table([*ROWS, row("other", 0, "input", 1.0, noise="b")])
