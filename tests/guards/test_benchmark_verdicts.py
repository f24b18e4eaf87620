"""A limit of a benchmark: met by the median, missed where chance cannot explain it, and undecided between."""

from __future__ import annotations

import doctest
from pathlib import Path

import numpy as np
import pytest
from benchmarks import neighbours, side_by_side
from benchmarks.record import DOCS, PAGES, Thresholds, last_rows, table, to_row
from benchmarks.side_by_side import Ratio, Turns, below_median, in_processes

LIMITS = Thresholds({"ours / theirs": 1.02})


def ratio(*ratios: float) -> Ratio:
    return Ratio.of("ours / theirs", [(each, 1.0) for each in ratios])


def test_the_examples_of_the_docstrings() -> None:
    assert doctest.testmod(side_by_side).failed == 0


@pytest.mark.parametrize(
    ("ratios", "verdict"),
    [
        ([0.9, 1.0, 1.03, 1.3, 1.4], "not told apart"),
        ([0.9, 1.0, 1.01, 1.01, 1.4], "ok"),
        ([1.03, 1.04, 1.05, 1.06, 1.07], "ABOVE"),
        ([1.0, *[1.05] * 8], "ABOVE"),  # one lucky round of nine is not enough
        ([1.0, 1.0, *[1.05] * 7], "not told apart"),
        ([1.0, 1.0, *[1.15] * 7], "ABOVE"),  # far above, and seldom below
    ],
)
def test_verdicts(ratios: list[float], verdict: str) -> None:
    assert LIMITS.verdict(ratio(*ratios)).startswith(verdict)


def test_a_ratio_without_a_limit_is_reported() -> None:
    assert Thresholds({}).verdict(ratio(5.0)) == "(reported)"


def test_where_the_interval_begins_is_right_in_nearly_all_runs() -> None:
    """Of a skewed law with median 1: 97.5% at least, and not all, or it would tell nothing."""
    draws = np.sort(np.random.Generator(np.random.Philox(key=7)).lognormal(0.0, 0.5, (20_000, 21)))
    held = (draws[:, below_median(21)] <= 1).mean()
    assert 0.975 <= held < 0.995
    assert (draws[:, below_median(21) + 2] <= 1).mean() < 0.95


ABOUT = {"torch": "2", "threads": 2, "machine": "m", "part": "p"}


@pytest.mark.parametrize(
    ("ratios", "told"),
    [
        ([0.9, 1.0, 1.01, 1.3, 1.4], "| 1.010 | 1.000 to 1.300 | 1.02 | 5 |"),
        ([0.9, 1.0, 1.05, 1.3, 1.4], "| 1.050 | 1.000 to 1.300 | 1.02 (from 0.900) | 5 |"),
        ([0.9, 1.0, 1.25, 1.3, 1.4], "| 1.250 | 1.000 to 1.300 | 1.02 (missed) | 5 |"),
    ],
)
def test_the_table_tells_what_is_undecided_and_what_is_missed(
    monkeypatch: pytest.MonkeyPatch, ratios: list[float], told: str
) -> None:
    assert "ours / theirs" not in Thresholds.read().at_most
    monkeypatch.setattr(Thresholds, "read", lambda: LIMITS)
    assert told in table([to_row(ratio(*ratios), LIMITS) | ABOUT])


def test_the_table_tells_how_long_one_run_took() -> None:
    first, last = (
        to_row(ratio(1.0), LIMITS) | ABOUT | {"part": part, "run": "a", "run_seconds": seconds}
        for part, seconds in (("p", 60), ("q", 90))
    )
    assert table([first, last]).endswith("The run took 1.5 minutes.")
    assert "minutes" not in table([first, last | {"run": "b"}])


def test_the_table_tells_what_other_machines_took() -> None:
    calm, busy, unknown = (
        to_row(ratio(1.0), LIMITS) | ABOUT | {"part": part, "run": part, "stolen": share}
        for part, share in (("p", 0.01), ("q", 0.16), ("r", None))
    )
    assert table([calm, busy, unknown]).endswith(
        "Other machines took up to 16% of the processors' time (`q`)."
    )
    assert "Other machines" not in table([unknown])


def test_stolen_time_is_read_from_what_linux_tells(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    monkeypatch.setattr(neighbours, "STAT", stat)
    assert neighbours.Clock.read() is None  # another system
    assert neighbours.stolen_since(None) is None
    stat.write_text("cpu  100 0 50 200 0 0 0 10 7 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n")
    before = neighbours.Clock.read()
    stat.write_text("cpu  150 0 50 220 0 0 0 40 99 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n")
    assert neighbours.stolen_since(before) == pytest.approx(0.3)


class Host:
    """A machine whose works take `ticks`, of which others steal some in those rounds that are named."""

    def __init__(self, path: Path, *, stolen: dict[int, int], ticks: int = 100) -> None:
        self.path, self.stolen, self.ticks, self.runs, self.lost, self.all = path, stolen, ticks, 0, 0, 0
        self.tell()

    def tell(self) -> None:
        self.path.write_text(f"cpu  {self.all - self.lost} 0 0 0 0 0 0 {self.lost} 0 0\n")

    def work(self) -> None:
        self.all += self.ticks
        self.lost += self.stolen.get(self.runs, 0)
        self.runs += 1
        self.tell()


@pytest.mark.parametrize(
    ("stolen", "left_out", "runs"),
    [
        ({}, 0, 7),
        ({2: 3}, 1, 8),  # the second run is the first round, for the first one warms up
        ({2: 1}, 0, 7),  # little
        (dict.fromkeys(range(99), 50), 2, 9),  # a third of six rounds, then they count
    ],
)
def test_rounds_that_other_machines_disturb_are_measured_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, stolen: dict[int, int], left_out: int, runs: int
) -> None:
    monkeypatch.setattr(neighbours, "STAT", tmp_path / "stat")
    host = Host(tmp_path / "stat", stolen=stolen)
    (seconds,), told = side_by_side.by_turns([host.work], rounds=6)
    assert (len(seconds), told, host.runs) == (6, left_out, runs)


def test_a_ratio_tells_how_many_rounds_do_not_count() -> None:
    some = Ratio.of("ours / theirs", [(1.0, 1.0)] * 5, left_out=2)
    assert "n=5 (+2)" in str(some)
    assert "| 5 (+2) |" in table([to_row(some, LIMITS) | ABOUT])
    assert "+" not in table([to_row(ratio(1.0), LIMITS) | ABOUT])


def test_the_docs_show_the_last_rows() -> None:
    for name, part in PAGES.items():
        shown = table([row for row in last_rows() if part in (None, row["part"])])
        assert shown in (DOCS / name).read_text(encoding="utf-8")


def _two_ways(first: float) -> Turns:
    return Turns([[first], [2 * first]], 1)


def test_what_several_processes_measured_is_put_together_way_by_way() -> None:
    assert in_processes(2, _two_ways, 3.0) == Turns([[3.0, 3.0], [6.0, 6.0]], 2)
    assert in_processes(1, _two_ways, 3.0) == _two_ways(3.0)
