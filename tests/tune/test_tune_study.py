"""Whole studies, tiny: killed and gone on with, dropped trials, the test part out of reach, foreign folders."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import Any

import pytest
from tuning import CELLS, results, rows_in, run_study, study_in_its_own_process, tiny

import nfm.tune.bench
import nfm.tune.history
import nfm.tune.study
import nfm.tune.trial
from nfm.config.build import build_data
from nfm.errors import ConfigError, EnvironmentProblem, NumericalError, Stopped, UsageError
from nfm.tune.dominance import Score
from nfm.tune.front import finish
from nfm.tune.lock import locked
from nfm.tune.study import Study, tune
from running import assert_different_result, assert_same_result, in_memory, start

__all__ = ["in_memory"]  # a fixture


class Killed(Exception):
    """What stands for a kill: nothing after it is done."""


@pytest.fixture(autouse=True)
def _few_at_random(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nfm.tune.history, "AT_RANDOM", 2)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study without a break."""
    folder = tmp_path_factory.mktemp("whole") / "study"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nfm.tune.history, "AT_RANDOM", 2)
        run_study(folder)
    return folder


def kill_at(patch: pytest.MonkeyPatch, place: Any, name: str, call: int) -> None:
    """Let `name` of `place` raise at its nth call, once."""
    real, calls = getattr(place, name), iter(range(1000))

    def killed(*args: Any, **kwargs: Any) -> Any:
        if next(calls) == call:
            raise Killed
        return real(*args, **kwargs)

    patch.setattr(place, name, killed)


def test_a_row_each_with_settings_numbers_state_and_time(whole: Path) -> None:
    reference, *trials = rows_in(whole)
    assert (reference["kind"], reference["scheme"]) == ("reference", "erm")
    assert [row["trial"] for row in trials] == [0, 1, 2, 3, 4]
    assert trials[0]["settings"]["noise.add"] == 0.4
    for row in trials:
        assert set(row["settings"]) == {"noise.add", "noise.mult", "alpha", "sites"}
        assert row["n"] == 197
        assert row["seconds"] > 0
        assert row["cells"] == {"clean 0": row["clean"], "white_noise 0.3": row["robust"]}
        assert row["state"] in ("complete", "pruned")
        assert row["rung"]["epochs"] == 1
    assert any(row["front"] for row in trials)


@pytest.mark.parametrize(
    ("place", "name", "call"),
    [
        (nfm.tune.progress.StudyProgress, "step", 4),  # of the reference
        (nfm.tune.progress.StudyProgress, "step", 23),  # of trial 1, before its last epoch
        (nfm.tune.trial.Rung, "decide", 5),
        (nfm.tune.bench.Bench, "measure", 5),
        (nfm.tune.history.History, "add", 2),
        (nfm.tune.study.Journal, "rewrite", 2),
    ],
)
def test_a_killed_study_ends_as_one_without_a_break(
    place: Any, name: str, call: int, whole: Path, in_memory: Path
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        kill_at(patch, place, name, call)
        with pytest.raises(Killed):
            run_study(in_memory / "cut")
    assert len(nfm.tune.history.History(in_memory / "cut", _space(), seed=0).rows) < 5
    assert results(run_study(in_memory / "cut")) == results(rows_in(whole))
    assert results(rows_in(in_memory / "cut")) == results(rows_in(whole))
    for trial in ("erm", "000", "001"):
        assert_same_result(in_memory / "cut" / "trials" / trial, whole / "trials" / trial)
    assert_different_result(whole / "trials" / "000", whole / "trials" / "001")


def _space() -> Any:
    return nfm.tune.study.find_space(
        tiny().method, nfm.tune.study.build_parts(tiny(), build_data(tiny().data)).model
    )


def test_a_sampler_that_knows_the_session_would_be_seen(
    whole: Path, in_memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        kill_at(patch, nfm.tune.history.History, "add", 2)
        with pytest.raises(Killed):
            run_study(in_memory / "cut")
    monkeypatch.setattr(nfm.tune.history, "fold", lambda *parts: 7)
    with pytest.raises(ConfigError, match=r"trials/002 holds another run"):
        run_study(in_memory / "cut")


@pytest.mark.slow
def test_a_process_that_was_killed_goes_on(whole: Path, in_memory: Path) -> None:
    process = start(study_in_its_own_process, in_memory / "cut", 5)
    second = in_memory / "cut" / "trials" / "001" / "rows.jsonl"
    while not second.exists():
        assert process.is_alive()
        time.sleep(0.005)
    process.kill()
    process.join()
    assert results(run_study(in_memory / "cut")) == results(rows_in(whole))


def test_more_trials_are_added_and_fewer_change_nothing(whole: Path, in_memory: Path) -> None:
    run_study(in_memory / "grown", trials=2)
    grown = results(run_study(in_memory / "grown", trials=5))
    assert grown == results(rows_in(whole))
    assert results(run_study(in_memory / "grown", trials=1)) == grown


def test_another_seed_is_another_study(whole: Path, in_memory: Path) -> None:
    other = run_study(in_memory / "other", "train.seed=1", trials=2)
    assert other[2]["settings"] != rows_in(whole)[2]["settings"]


class OutOfReach:
    """A test part that nobody may look at."""

    def __getattribute__(self, name: str) -> Any:
        raise AssertionError(f"the test part was looked at: {name}")

    __len__ = property(lambda self: self.anything)  # type: ignore[assignment]


def test_the_test_part_is_never_looked_at(
    whole: Path, in_memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_test(config: Any) -> Any:
        return dataclasses.replace(build_data(config), test=OutOfReach())

    monkeypatch.setattr(nfm.tune.bench, "build_data", without_test)
    with pytest.raises(AssertionError, match="the test part was looked at"):
        len(without_test(tiny().data).test)
    rows = run_study(in_memory / "study")
    finish(Study(rows, tiny(), CELLS, in_memory / "study"))
    assert results(rows) == results(rows_in(whole))


def test_trials_without_hope_are_dropped_and_kept_as_rows(
    in_memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nfm.tune.trial, "is_hopeless", lambda score, rivals: len(rivals) == 2)
    rows = run_study(in_memory, trials=4)[1:]
    assert [row["state"] for row in rows] == ["complete", "complete", "pruned", "complete"]
    dropped = rows[2]
    assert {name: dropped["rung"][name] for name in ("clean", "robust", "n")} == {
        name: dropped[name] for name in ("clean", "robust", "n")
    }
    assert not dropped["front"]
    epochs = [row for row in rows_in(in_memory / "trials" / "003") if row["kind"] == "epoch"]
    assert len(epochs) == 3
    assert not (in_memory / "trials" / "002" / "validation").exists()


def test_the_rung_compares_with_all_that_came_before(
    in_memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[Score, list[Score]]] = []
    monkeypatch.setattr(
        nfm.tune.trial, "is_hopeless", lambda score, rivals: bool(seen.append((score, list(rivals))))
    )
    rows = run_study(in_memory, trials=3)[1:]
    assert [len(rivals) for _, rivals in seen] == [1, 2]
    assert [score.clean for score in seen[1][1]] == [row["rung"]["clean"] for row in rows[:2]]


def test_a_trial_that_goes_astray_is_told_and_the_others_go_on(
    in_memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = nfm.tune.trial.fit

    def astray(*args: Any, **settings: Any) -> Any:
        if settings["out"].name == "001":
            raise NumericalError("the loss is nan")
        return real(*args, **settings)

    monkeypatch.setattr(nfm.tune.trial, "fit", astray)
    rows = run_study(in_memory, trials=3)[1:]
    assert [row["state"] for row in rows] == ["complete", "failed", "complete"]
    assert (rows[1]["clean"], rows[1]["reason"]) == (None, "the loss is nan")
    assert "1 failed" in finish(Study(rows, tiny(), CELLS, in_memory))


def test_a_polite_end_says_that_the_same_command_goes_on(
    in_memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*args: Any, **settings: Any) -> Any:
        raise Stopped("stopped after step 3; the state is saved", 15)

    monkeypatch.setattr(nfm.tune.trial, "fit", stopped)
    with pytest.raises(Stopped, match="state is saved; the same command goes on") as end:
        run_study(in_memory)
    assert end.value.exit_code == 143


def test_every_trial_is_trained_to_its_end_where_none_is_to_be_dropped(
    in_memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nfm.tune.trial, "is_hopeless", lambda score, rivals: True)
    assert [row["state"] for row in run_study(in_memory / "drop", trials=2)[1:]] == ["complete", "pruned"]
    assert [row["state"] for row in run_study(in_memory / "keep", trials=2, prune=False)[1:]] == [
        "complete"
    ] * 2
    with pytest.raises(UsageError, match="prune: True there, False here"):
        run_study(in_memory / "drop", trials=2, prune=False)


def test_a_study_of_failures_says_so(in_memory: Path) -> None:
    rows = run_study(in_memory, "optimizer.lr=1e20", trials=1)
    with pytest.raises(NumericalError, match="no trial came to its end: "):
        finish(Study(rows, tiny(), CELLS, in_memory))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("train.seed=1", "recipe.train.seed: 0 there, 1 here"),
        ("train.epochs=4", "recipe.train.epochs: 3 there, 4 here"),
        ("method.alpha=2", "recipe.method.alpha: "),
        ("data.subset=47", "recipe.data.subset: "),
    ],
)
def test_the_folder_of_another_study_is_refused(change: str, told: str, whole: Path) -> None:
    with pytest.raises(UsageError, match=rf"(?s)holds another study.*{told}.*--overwrite") as refused:
        run_study(whole, change)
    assert "optimizer" not in str(refused.value)


def test_overwrite_starts_anew(whole: Path, in_memory: Path) -> None:
    run_study(in_memory, "train.seed=1", trials=1)
    (in_memory / "front").mkdir()
    with pytest.raises(UsageError, match="scheme 'cutmix'"):  # nothing is cleared for what is refused
        run_study(in_memory, "method.scheme=cutmix", overwrite=True)
    assert len(rows_in(in_memory)) == 2
    assert results(run_study(in_memory, overwrite=True)) == results(rows_in(whole))
    assert not (in_memory / "front").exists()


def test_overwrite_leaves_a_folder_that_is_no_study(in_memory: Path) -> None:
    (in_memory / "thesis.txt").write_text("years of work")
    run_study(in_memory, trials=1, overwrite=True)
    assert (in_memory / "thesis.txt").exists()


def test_a_folder_in_use_is_refused(in_memory: Path) -> None:
    with locked(in_memory), pytest.raises(EnvironmentProblem, match="in use by another process"):
        run_study(in_memory)


@pytest.mark.parametrize(
    ("overrides", "trials", "message"),
    [
        (["data.validation=0"], 1, r"data.validation: expected a share.*got 0.*--set data.validation=0.1"),
        (["train.epochs=0"], 1, "epochs: expected at least 1, got 0"),
        ([], 0, "trials: expected at least 1, got 0"),
        (["method.scheme=cutmix"], 1, "scheme 'cutmix': expected one part with noise"),
        (["method.scheme=nfm | mixup"], 1, "expected one part with noise to change, got nfm, mixup"),
    ],
)
def test_what_cannot_be_tuned_is_refused_before_anything_is_written(
    overrides: list[str], trials: int, message: str, in_memory: Path
) -> None:
    with pytest.raises(UsageError, match=message):
        run_study(in_memory / "study", *overrides, trials=trials)
    assert not (in_memory / "study").exists()


def test_cells_that_cannot_be_measured_are_told_before_training(in_memory: Path) -> None:
    with pytest.raises(UsageError, match=r"expected pixels in \[0, 1\]"):
        run_study(in_memory / "study", "data.name=circles", "data.subset=0")
    with pytest.raises(UsageError, match="expected a perturbation with a level above 0"):
        tune(tiny(), CELLS[:1], trials=1, out=in_memory / "study", device="cpu")
    assert not (in_memory / "study").exists()
