"""Two objectives at once: which trial beats which, which are on the front, which are not worth going on with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nfm.results import Row

ENOUGH = 4  # earlier trials to compare with: from the fifth on, a trial can be dropped
COMPLETE, PRUNED, FAILED = "complete", "pruned", "failed"


@dataclass(frozen=True)
class Score:
    """Accuracies of one network on `n` validation examples: clean, the mean of all other cells, and each cell."""

    clean: float
    robust: float
    n: int
    cells: dict[str, float]


def is_hopeless(score: Score, earlier: Sequence[Score]) -> bool:
    """Tell whether at least half of the earlier trials were better in both objectives at the same age.

    >>> poor, good = Score(0.8, 0.5, 100, {}), Score(0.9, 0.6, 100, {})
    >>> is_hopeless(poor, [good] * 4), is_hopeless(poor, [good] * 3), is_hopeless(good, [poor] * 4)
    (True, False, False)
    """
    better = sum(other.clean > score.clean and other.robust > score.robust for other in earlier)
    return len(earlier) >= ENOUGH and 2 * better >= len(earlier)


def mark_front(rows: Sequence[Row]) -> list[Row]:
    """Return the rows, each told whether it is on the Pareto front of the complete trials."""
    return [row | {"front": _is_complete(row) and not _is_beaten(row, rows)} for row in rows]


def front_of(rows: Sequence[Row]) -> list[Row]:
    """Return the trials of the front, from the cleanest to the most robust; of equal ones, the first."""
    chosen = {(row["clean"], row["robust"]): row for row in reversed(rows) if row["front"]}
    return [chosen[key] for key in sorted(chosen, reverse=True)]


def _is_complete(row: Row) -> bool:
    return row["kind"] == "trial" and row["state"] == COMPLETE


def _is_beaten(row: Row, rows: Sequence[Row]) -> bool:
    """Tell whether another trial is no worse in both objectives and better in one."""
    mine = (row["clean"], row["robust"])
    others = [(other["clean"], other["robust"]) for other in rows if _is_complete(other)]
    return any(other != mine and other[0] >= mine[0] and other[1] >= mine[1] for other in others)
