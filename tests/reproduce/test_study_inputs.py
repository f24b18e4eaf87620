"""What goes wrong around a study is told, and costs nothing: wrong numbers, broken files, several processes."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from studies import TINY, places_in, write_tiny

from nfm.cli import main
from nfm.errors import ConfigError, DataError, EnvironmentProblem, UsageError
from nfm.reproduce import front
from nfm.reproduce.execution import check_writable
from nfm.reproduce.families import family_table
from nfm.reproduce.jobs import Job, jobs_of
from nfm.reproduce.layout import show_number
from nfm.reproduce.pages import write_page
from nfm.reproduce.reading import read_study, study_names, study_to_do
from nfm.reproduce.records import Record
from nfm.reproduce.statistics import over_runs
from nfm.reproduce.study import Arm, Line, Measure, Scale
from nfm.results import Row, write_atomically

WRONG = [
    ("seeds = 1\n", "seeds = -1\n", r"arms\[1\].seeds: expected the most seeds .* got -1"),
    ("seeds = [0, 1]", "seeds = [0, 1, 0]", "small.seeds: 0 is there twice"),
    ("watch = 20", "watch = -5", "small.watch: expected a number of images, 0 for none, got -5"),
    ("60.0, 50.0, 40.0, 30.0]", "60.0]", r"arms\[0\].published: expected 7 numbers, .* got 4"),
    ("{ 2 = ", "{ 7 = ", r"arms\[0\].errors: expected 'row', or .* its 7 published .* got '7'"),
    ("{ 2 = ", "{ clean = ", r"arms\[0\].errors: .* got 'clean'"),
    (
        "images = 40\n",
        'images = 40\n[[small.measures]]\nsuite = "cifar"\nimages = 40\n',
        "small.measures: cifar/pixel/40 is there twice",
    ),
]


@pytest.mark.parametrize(("right", "wrong", "told"), WRONG)
def test_numbers_that_cannot_be_meant_are_refused(tmp_path: Path, right: str, wrong: str, told: str) -> None:
    read_study(write_tiny(tmp_path))
    with pytest.raises(ConfigError, match=told):
        read_study(write_tiny(tmp_path, TINY.replace(right, wrong, 1)))


def test_the_mark_of_a_whole_row_is_no_column(tmp_path: Path) -> None:
    (erm, *_) = read_study(write_tiny(tmp_path, TINY.replace("{ 2 = ", "{ row = "))).small
    assert erm.arm.errors == {"row": "a slip"}


def test_a_seed_that_is_asked_for_twice_is_trained_once(tmp_path: Path) -> None:
    study = read_study(write_tiny(tmp_path))
    assert [job.seed for job in jobs_of(study, "small", seeds=[1, 0, 1], arms=["erm"])] == [1, 0]


def test_a_file_that_is_not_there_is_told_as_such(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "nowhere.toml"]) == 2
    assert "no study 'nowhere.toml': there is no such file in /" in capsys.readouterr().err


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """Return a job whose rows are kept in one file with those of others."""
    text = TINY.replace("watch = 20", 'watch = 20\ntogether = "all"')
    return jobs_of(read_study(write_tiny(tmp_path, text)), "small")[0]


def cell(measure: str) -> Row:
    return {
        "kind": "cell", "measure": measure, "perturbation": "clean", "level": 0.0, "accuracy": 0.5, "n": 10,
        "data": "d", "protocol": "pixel",
    }  # fmt: skip


def test_rows_of_processes_at_once_are_all_kept(
    tmp_path: Path, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two write to one file: the second waits until the first has written, and does not write over its rows."""
    read, write = threading.Event(), threading.Event()
    path = Record.of(tmp_path, job).path

    def slow(*args: Any) -> None:
        if not read.is_set():
            read.set()
            write.wait(0.3)
        write_atomically(*args)

    monkeypatch.setattr("nfm.reproduce.records.write_atomically", slow)
    first = threading.Thread(target=Record(path, "a").add, args=([cell("m")],))
    first.start()
    assert read.wait(10)
    Record(path, "b").add([cell("m")])
    write.set()
    first.join()
    assert [len(Record(path, name).rows()) for name in "ab"] == [1, 1]


def test_a_measure_that_another_process_added_is_not_added_again(tmp_path: Path, job: Job) -> None:
    record = Record.of(tmp_path, job)
    for _ in range(2):
        record.add([{"kind": "run", "made_by": {}}, {"kind": "epoch", "epoch": 0}])
        record.add([cell("m"), cell("m")])
        record.add([cell("other")])
    assert [row["kind"] for row in record.rows()] == ["run", "epoch", "cell", "cell", "cell"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"kind": "run", "made_by"', r"line 1: expected a JSON object"),
        ('{"any": "thing"}\n', r"line 1: expected a row of `nfm reproduce`, got one without run, kind; take"),
        ('{"kind": "cell", "run": "a", "level": 1}\n', r"without measure, perturbation, accuracy, n, data"),
    ],
)
def test_rows_that_are_broken_are_refused_by_file_and_line(
    tmp_path: Path, job: Job, text: str, told: str
) -> None:
    record = Record.of(tmp_path, job)
    record.path.parent.mkdir(parents=True)
    record.path.write_text(text)
    with pytest.raises(DataError, match=told) as error:
        record.rows()
    assert str(record.path) in str(error.value)
    record.path.write_text("")
    assert record.rows() == []


def test_a_place_that_cannot_be_written_to_is_told_before_training(tmp_path: Path) -> None:
    places = places_in(tmp_path)
    check_writable(places)
    (places.claims / "rows").rmdir()
    (places.claims / "rows").symlink_to("/proc/self")  # a folder that takes no file, not even of root
    with pytest.raises(EnvironmentProblem, match="--claims: cannot write to"):
        check_writable(places)
    unwritable = Path("/proc/self")
    for name in ("docs", "runs"):
        with pytest.raises(EnvironmentProblem, match=f"--{name}: cannot write to"):
            check_writable(replace(places_in(tmp_path / name), **{name: unwritable}))
    check_writable(replace(places_in(tmp_path / "rows"), runs=unwritable), training=False)


@pytest.mark.parametrize(
    "damage",
    [
        lambda claim: claim.pop("title"),
        lambda claim: claim.update(scales={"small": {}}),
        lambda claim: claim.update(scales={"small": {"tables": [{"kind": "cels"}]}}),
        lambda claim: claim.update(scales={"small": {"tables": [{"kind": "cells"}]}}),
        lambda claim: claim.update(scales=[1]),
    ],
)
def test_a_claim_that_cannot_be_shown_is_told_by_its_file(tmp_path: Path, damage: Any) -> None:
    claim: Row = {"id": "mine", "title": "Mine", "source": "nowhere", "notes": [], "scales": {}}
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(claim))
    write_page(tmp_path, tmp_path / "docs")
    before = (tmp_path / "docs/results.md").read_text()
    damage(claim)
    path.write_text(json.dumps(claim))
    with pytest.raises(DataError, match=r"mine.json: expected a claim .*nfm reproduce mine --from-rows"):
        write_page(tmp_path, tmp_path / "docs")
    assert (tmp_path / "docs/results.md").read_text() == before


def test_a_readme_is_not_cut_where_its_second_mark_is_gone(tmp_path: Path) -> None:
    readme, images = tmp_path / "README.md", tmp_path / "docs" / "images" / "results"
    number = {"mean": 0.5, "std": 0.1, "seeds": 2, "n": 10}
    table = {
        "measure": front.SUITE, "n": 10, "protocol": "authors", "columns": [["clean", 0.0]],
        "lines": [{"label": "erm", "accuracy": [number]}],
    }  # fmt: skip
    found = {front.STUDY: {"notes": [], "scales": {"small": {"tables": [table]}}}}
    text = f"{front.END}\nbefore\n{front.BEGIN}\nold\nafter\n"
    readme.write_text(text)
    with pytest.raises(DataError, match=r"README.md: expected .*end of results.* put them back"):
        front.write_front(found, images, readme)
    assert readme.read_text() == text
    training = {front.STUDY: {"notes": [], "scales": {"small": {"tables": [{"kind": "training"}]}}}}
    front.write_front(training, images, readme)  # no such table yet
    assert readme.read_text() == text


def test_a_number_is_rounded_once() -> None:
    rows = [{"train_seed": seed, "accuracy": value, "n": 20_000} for seed, value in ((0, 0.8), (1, 0.960990))]
    number = over_runs(rows)
    assert number is not None
    assert show_number(number.as_row()).startswith(
        "88.0 "
    )  # 88.0495; by way of 0.8805 it would depend on luck
    assert number.as_row()["mean"] == 0.880495


def test_nothing_is_a_blind_spot_by_chance() -> None:
    """A difference must be more than what chance does to the test images, and of two seeds there is none."""

    def worse(fog: float, *, seeds: int) -> list[str]:
        rows = [
            {
                "arm": arm, "train_seed": seed, "perturbation": "fog", "level": level, "n": 500, "protocol": "pixel",
                "data": "d", "accuracy": accuracy,
            }
            for arm, accuracy in (("erm", 0.6), ("nfm", fog))
            for level in (1, 2, 3, 4, 5)
            for seed in range(seeds)
        ]  # fmt: skip
        lines = [Line(Arm(name, "erm"), Scale(), "small") for name in ("erm", "nfm")]
        found: list[str] = family_table(lines, Measure("corruptions-19"), rows)["lines"][1]["worse"]
        return found

    assert worse(0.59, seeds=3) == []
    assert worse(0.5, seeds=3) == ["fog"]
    assert worse(0.5, seeds=2) == []


def test_a_file_called_like_a_study_of_the_paper_is_refused(tmp_path: Path) -> None:
    """Its claim would be written over."""
    path = write_tiny(tmp_path, name="cifar10c")
    with pytest.raises(UsageError, match=r"'cifar10c' is the ID of a study of the paper.*another name"):
        study_to_do(str(path))
    assert study_to_do(str(study_names()["cifar10c"])).id == "cifar10c"
    assert study_to_do(str(write_tiny(tmp_path, name="cifar10d"))).id == "cifar10d"


def test_rows_stay_among_the_claims(tmp_path: Path) -> None:
    text = TINY.replace("watch = 20", 'watch = 20\ntogether = "../../x"')
    with pytest.raises(ConfigError, match=r"small.together: expected the name of a file without a folder"):
        read_study(write_tiny(tmp_path, text))
