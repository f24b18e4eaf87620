"""Sources: what is found on disk, each once, under labels that tell trainings apart."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from measured import make_run, measure
from nfm.errors import DataError, UsageError
from nfm.report.sources import read_sources, select
from nfm.results import append_rows


def test_a_run_an_evaluation_and_rows_alone(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    (source,) = read_sources([run])
    assert source.path == run / "evaluation-pixel"
    assert (source.label, source.train_seed, source.classes) == ("erm", 0, ("cat", "dog", "owl"))
    assert [row["epoch"] for row in source.epochs] == [0, 1, 2, 3]
    assert source.made_by["torch"]
    assert source.strip(("clean", 0.0)) is not None
    assert source.strip(("pgd7", 1 / 255)) is None
    (alone,) = read_sources([measure(tmp_path / "alone")])
    assert (alone.run, alone.epochs) == ({}, ())
    rows = tmp_path / "rows"
    append_rows(
        rows / "rows.jsonl", source.report.rows + [row | {"scheme": "nfm"} for row in source.report.rows]
    )
    assert [one.label for one in read_sources([rows])] == ["erm", "nfm"]
    assert read_sources([rows])[0].report.outcomes == {}


def test_each_evaluation_counts_once(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    measure(run / "evaluation-authors", protocol="authors")
    assert len(read_sources([run, run / "evaluation-pixel", tmp_path / "run" / ".." / "run"])) == 2


def test_seeds_share_a_label_and_other_settings_do_not(tmp_path: Path) -> None:
    for seed in (0, 1):
        make_run(tmp_path / f"a{seed}", seed=seed)
    labels = [source.label for source in read_sources([tmp_path / "a0", tmp_path / "a1"])]
    assert labels == ["erm", "erm"]
    wide = make_run(tmp_path / "wide", config={"model": {"width": 2}}, blur=0.1)
    labels = [source.label for source in read_sources([tmp_path / "a0", wide])]
    assert labels == ["erm (a0)", "erm (wide)"]


def test_two_models_of_one_seed_are_told_apart(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    measure(run / "evaluation-pixel-step-10", blur=0.2)
    labels = [source.label for source in read_sources([run])]
    assert labels == [f"erm ({run}/evaluation-pixel)", f"erm ({run}/evaluation-pixel-step-10)"]
    same_name = make_run(tmp_path / "other" / "run", blur=0.3)
    labels = [source.label for source in read_sources([tmp_path / "run" / "evaluation-pixel", same_name])]
    assert labels == [f"erm ({run})", f"erm ({same_name})"]


def test_what_was_not_measured_is_refused(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    for file in (run / "evaluation-pixel").rglob("*"):
        if file.is_file():
            file.unlink()
    with pytest.raises(UsageError, match=f"nfm evaluate {run}"):
        read_sources([run])
    with pytest.raises(UsageError, match="found no evaluation"):
        read_sources([tmp_path / "nowhere"])
    with pytest.raises(UsageError, match="at least one run"):
        read_sources([])


def test_damaged_files_are_refused_by_name(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    (run / "run.json").write_text("[1]")
    with pytest.raises(DataError, match=r"run\.json: expected a JSON object, got list"):
        read_sources([run])
    (run / "run.json").write_text("[" * 100_000)
    with pytest.raises(DataError, match=r"run\.json"):
        read_sources([run])
    append_rows(tmp_path / "rows" / "rows.jsonl", [{"accuracy": 1}])
    with pytest.raises(DataError, match="without perturbation"):
        read_sources([tmp_path / "rows"])


def test_selecting(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    measure(run / "evaluation-authors", protocol="authors")
    sources = read_sources([run])
    assert [s.path.name for s in select(sources, protocol="authors")] == ["evaluation-authors"]
    assert len(select(sources, data="patterns")) == 2
    with pytest.raises(UsageError, match=r"there are: .*authors.*pixel"):
        select(sources, protocol="pixels")


def test_an_evaluation_without_cells_is_refused(tmp_path: Path) -> None:
    (tmp_path / "identity.json").write_text(json.dumps({"model": "x"}))
    with pytest.raises(UsageError, match="at least one measured cell"):
        read_sources([tmp_path])
