"""Proposals are a function of the trials before and the seed; the journal survives what a kill leaves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import nfm.tune.history as history_of_tune
from nfm.errors import DataError, EnvironmentProblem
from nfm.tune.history import JOURNAL, History, import_optuna
from nfm.tune.space import Choice, Range, Settings, Space

SPACE = Space(
    {"noise.add": Range(0.0, 1.2), "alpha": Range(0.1, 4.0, log=True), "sites": Choice(("input", "stage1"))},
    {"noise.add": 0.4, "alpha": 1.0, "sites": "input"},
)


@pytest.fixture(autouse=True)
def _few_at_random(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_of_tune, "AT_RANDOM", 3)


def do_trials(
    folder: Path, count: int, *, seed: int = 0, each: int = 100, good: float = 0.5
) -> list[Settings]:
    """Propose and finish trials; a new object after every `each`, as after an interruption."""
    folder.mkdir(exist_ok=True)
    history = History(folder, SPACE, seed=seed)
    for number in range(count):
        if number % each == 0:
            history = History(folder, SPACE, seed=seed)
        settings: Any = history.propose()
        state = {4: "pruned", 5: "failed"}.get(number, "complete")
        robust = 1 - abs(settings["noise.add"] - good)
        history.add({"settings": settings, "state": state, "clean": settings["alpha"], "robust": robust})
    return [row["settings"] for row in history.rows]


@pytest.mark.usefixtures("untouched_generators")
def test_an_interrupted_study_proposes_the_same(tmp_path: Path) -> None:
    whole = do_trials(tmp_path / "whole", 12)
    assert do_trials(tmp_path / "cut", 12, each=1) == whole
    assert whole[0] == SPACE.start
    assert len({str(settings) for settings in whole}) == 12


def test_another_seed_or_history_proposes_other(tmp_path: Path) -> None:
    whole = do_trials(tmp_path / "whole", 8)
    assert do_trials(tmp_path / "seed", 8, seed=1)[1:] != whole[1:]
    other = do_trials(tmp_path / "history", 8, good=1.1)
    assert other[:4] == whole[:4]  # at random: no history counts
    assert other[4:] != whole[4:]


def test_a_sampler_with_a_memory_would_be_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The seed of the whole study in place of the trial's: what a sampler drew before would count."""
    calls = iter(range(100))
    monkeypatch.setattr(history_of_tune, "fold", lambda *parts: next(calls))
    whole = do_trials(tmp_path / "whole", 6)
    assert do_trials(tmp_path / "cut", 6) != whole


def test_half_a_line_is_dropped(tmp_path: Path) -> None:
    whole = do_trials(tmp_path / "whole", 6)
    do_trials(tmp_path / "torn", 5)
    file = tmp_path / "torn" / JOURNAL
    file.write_bytes(file.read_bytes() + b'{"op_code": 4, "wor')
    history = History(tmp_path / "torn", SPACE, seed=0)
    assert [row["settings"] for row in history.rows] == whole[:5]
    assert history.propose() == whole[5]
    history.set_reference({"scheme": "erm"})
    assert History(tmp_path / "torn", SPACE, seed=0).reference == {"scheme": "erm"}


def test_a_journal_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / JOURNAL).write_text("not json\nat all\n")
    with pytest.raises(DataError, match=r"expected the journal of a study.*--overwrite"):
        History(tmp_path, SPACE, seed=0)


def test_without_optuna_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "optuna", None)
    with pytest.raises(EnvironmentProblem, match=r"nfm tune needs optuna.*noisy-feature-mixup\[tune\]"):
        import_optuna()
