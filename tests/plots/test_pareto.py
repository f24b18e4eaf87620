"""The picture of a study: every trial once, the front as stairs, what is marked, what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nfm.errors import UsageError
from nfm.plots.canvas import save_figure
from nfm.plots.pareto import pareto_front
from nfm.results import Row


def row(trial: int, clean: float | None, robust: float | None, **other: Any) -> Row:
    rung = {"clean": 0.5, "robust": 0.4, "epochs": 2, "n": 100, "cells": {}}
    cells = {"clean 0": clean, "white_noise 0.2": robust}
    return {
        "kind": "trial", "trial": trial, "scheme": "nfm", "clean": clean, "robust": robust, "n": 100,
        "cells": cells, "state": "complete", "front": False, "rung": rung,
    } | other  # fmt: skip


ROWS = [
    row(-1, 0.80, 0.40, kind="reference", scheme="erm"),
    row(0, 0.90, 0.50),
    row(1, 0.95, 0.60, front=True),
    row(2, 0.85, 0.80, front=True),
    row(3, 0.70, 0.30, state="pruned"),
    row(4, None, None, state="failed", rung=None),
]


def drawn(axes: Any) -> dict[str, list[list[float]]]:
    """Return the places of each kind of mark, in %."""
    return {str(marks.get_label()): marks.get_offsets().round(9).tolist() for marks in axes.collections}


def test_every_trial_is_drawn_and_the_front_is_stairs() -> None:
    end, rung = pareto_front(ROWS, title="a study").axes
    marks = drawn(end)
    assert marks["trial"] == [[50, 90]]
    assert marks["Pareto front, by trial"] == [[60, 95], [80, 85]]
    assert marks["trial 0: the recipe's own setting"] == [[50, 90]]
    assert marks["erm, for reference"] == [[40, 80]]
    (stairs,) = end.lines
    assert stairs.get_drawstyle() == "steps-pre"
    assert [text.get_text() for text in end.texts] == ["1", "2"]
    assert drawn(rung)["dropped early"] == [[40, 50]]
    assert sum(map(len, drawn(rung).values())) == 4  # all trials that came to that age
    assert "100 validation examples; white noise 0.2" in end.get_title(loc="left")


def test_without_dropped_trials_there_is_one_panel(tmp_path: Path) -> None:
    figure = pareto_front(ROWS[:4], title="a study")
    assert len(figure.axes) == 1
    first, second = (save_figure(figure, tmp_path / f"{name}.png").read_bytes() for name in "ab")
    assert first == second


def test_rows_without_a_complete_trial_are_refused() -> None:
    with pytest.raises(UsageError, match="at least one complete trial"):
        pareto_front(ROWS[4:], title="a study")
