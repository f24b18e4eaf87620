"""Which trials are on the front, and which are dropped: against the definition, written out."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from nfm.tune.dominance import ENOUGH, Score, front_of, is_hopeless, mark_front

ACCURACIES = st.tuples(st.integers(0, 5), st.integers(0, 5))


def row(
    trial: int, clean: float | None, robust: float | None, state: str = "complete", kind: str = "trial"
) -> dict:
    return {"kind": kind, "trial": trial, "clean": clean, "robust": robust, "state": state}


@given(st.lists(ACCURACIES, min_size=1, max_size=12))
def test_the_front_is_what_nothing_beats(pairs: list[tuple[int, int]]) -> None:
    rows = mark_front([row(place, *pair) for place, pair in enumerate(pairs)])
    for one in rows:
        beaten = any(
            (c > one["clean"] and r >= one["robust"]) or (c >= one["clean"] and r > one["robust"])
            for c, r in pairs
        )
        assert one["front"] == (not beaten)
    front = front_of(rows)
    assert front
    assert [one["clean"] for one in front] == sorted({one["clean"] for one in front}, reverse=True)
    assert [one["robust"] for one in front] == sorted({one["robust"] for one in front})


def test_dropped_failed_and_reference_are_never_on_the_front() -> None:
    rows = [
        row(0, 0.5, 0.5), row(1, 0.9, 0.9, "pruned"), row(2, None, None, "failed"),
        row(3, 1.0, 1.0, kind="reference"),
    ]  # fmt: skip
    assert [one["front"] for one in mark_front(rows)] == [True, False, False, False]


def test_of_equal_trials_the_first_is_shown() -> None:
    assert [one["trial"] for one in front_of(mark_front([row(4, 0.5, 0.5), row(7, 0.5, 0.5)]))] == [4]


def score(clean: float, robust: float) -> Score:
    return Score(clean, robust, 10, {})


def test_hopeless_is_worse_in_both_than_half() -> None:
    better, mixed, mine = score(0.9, 0.9), score(0.9, 0.1), score(0.5, 0.5)
    assert is_hopeless(mine, [better, better, mixed, mixed])
    assert not is_hopeless(mine, [better, mixed, mixed, mixed])
    assert not is_hopeless(mine, [score(0.5, 0.9)] * 9)
    assert not is_hopeless(mine, [better] * (ENOUGH - 1))
