"""From a command to a claim: train, be stopped, go on, and recompute everything from the rows alone."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from studies import TINY, places_in, write_tiny

from nfm.cli import main
from nfm.errors import ConfigError, DataError, NumericalError, Stopped
from nfm.reproduce import execution
from nfm.reproduce.claims import claim_of, rows_of, write_claim
from nfm.reproduce.execution import do_jobs
from nfm.reproduce.finish import finish
from nfm.reproduce.jobs import jobs_of
from nfm.reproduce.kinds import show_table
from nfm.reproduce.pages import write_page
from nfm.reproduce.reading import read_study
from nfm.reproduce.records import Record
from nfm.reproduce.rehearsal import rehearse
from nfm.results import read_object, read_rows
from nfm.train import checkpoint


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the rows of the tiny study."""
    folder = tmp_path_factory.mktemp("made")
    study = read_study(write_tiny(folder))
    do_jobs(jobs_of(study, "small"), places_in(folder))
    return folder


def no_training(*args: object, **settings: object) -> None:
    raise AssertionError("trained again")


def test_rows_are_small_and_tell_what_made_them(made: Path) -> None:
    study = read_study(made / "tiny.toml")
    for job in jobs_of(study, "small"):
        rows = list(read_rows(Record.of(made / "claims", job).path))
        head, *rest = rows
        assert head["kind"] == "run"
        assert head["config"]["train"]["seed"] == job.seed
        assert {row["kind"] for row in rest} == {"epoch", "cell", "measuring"}
        assert head["seconds"] > 0
        assert [row["seconds"] > 0 for row in rest if row["kind"] == "measuring"] == [True]
        assert sum(row["kind"] == "epoch" for row in rest) == job.config.train.epochs
        assert sum(row["kind"] == "cell" for row in rest) == 7
        assert all(
            "validation_accuracy" in row for row in rest if row["kind"] == "epoch"
        )  # the watched images
        assert all(row["n"] == 40 and row["run"] == job.name for row in rest if row["kind"] == "cell")


def test_finished_runs_are_not_trained_again_without_their_folders(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    study = read_study(made / "tiny.toml")
    shutil.copytree(made / "claims", tmp_path / "claims")
    monkeypatch.setattr(execution, "fit", no_training)
    do_jobs(jobs_of(study, "small"), places_in(tmp_path))
    assert capsys.readouterr().err.count("done already") == 3
    victim = Record.of(tmp_path / "claims", jobs_of(study, "small")[0]).path
    victim.unlink()
    with pytest.raises(AssertionError, match="trained again"):
        do_jobs(jobs_of(study, "small"), places_in(tmp_path))


def test_a_new_measure_is_added_to_what_is_there(made: Path, tmp_path: Path) -> None:
    for part in ("claims", "runs"):
        shutil.copytree(made / part, tmp_path / part)
    more = TINY.replace("[full]", '[[small.measures]]\nsuite = "vit"\nimages = 40\n[full]', 1)
    study = read_study(write_tiny(tmp_path, more))
    job = jobs_of(study, "small", arms=["nfm"])[0]
    before = Record.of(tmp_path / "claims", job).rows()
    do_jobs([job], places_in(tmp_path))
    after = Record.of(tmp_path / "claims", job).rows()
    assert after[: len(before)] == before
    assert {row["measure"] for row in after[len(before) :]} == {"vit/pixel/40"}
    assert sum(row["kind"] == "run" for row in after) == 1


def test_a_stopped_run_goes_on_to_the_same_rows(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = read_study(write_tiny(tmp_path))
    job = jobs_of(study, "small")[0]
    real = execution.fit

    def stopped(*args: object, **settings: object) -> object:
        from nfm.train.loop import Loop

        after = Loop._after_step

        def stop(self: Loop, epoch: int, step: int, *rest: object) -> None:
            after(self, epoch, step, *rest)  # type: ignore[arg-type]
            if (epoch, step) == (1, 0):
                os.kill(os.getpid(), signal.SIGTERM)

        with monkeypatch.context() as patch:
            patch.setattr(Loop, "_after_step", stop)
            return real(*args, **settings)  # type: ignore[arg-type]

    monkeypatch.setattr(execution, "fit", stopped)
    with pytest.raises(Stopped):
        do_jobs([job], places_in(tmp_path))
    assert Record.of(tmp_path / "claims", job).rows() == []
    monkeypatch.setattr(execution, "fit", real)
    do_jobs([job], places_in(tmp_path))
    whole, again = (Record.of(folder / "claims", job).rows() for folder in (made, tmp_path))
    assert again[0]["resumed"]
    assert [row | {"seconds": 0} for row in again[1:]] == [row | {"seconds": 0} for row in whole[1:]]


@pytest.mark.slow
def test_a_killed_command_goes_on(tmp_path: Path) -> None:
    write_tiny(tmp_path, TINY.replace("epochs = 2", "epochs = 40\ncheckpoint_seconds = 0.0"))
    command = [
        sys.executable, "-m", "nfm", "reproduce", "tiny.toml", "--arms", "erm", "--seeds", "0", "--device", "cpu",
    ]  # fmt: skip
    process = subprocess.Popen(command, cwd=tmp_path, env=os.environ | {"OMP_NUM_THREADS": "1"})
    started = time.monotonic()
    while (
        not list(tmp_path.glob("runs/reproduce/small/*/checkpoints/*.json"))
        and time.monotonic() - started < 120
    ):
        time.sleep(0.01)
    process.kill()
    process.wait()
    assert not list(tmp_path.glob("claims/rows/small/*.jsonl"))
    subprocess.run(command, cwd=tmp_path, env=os.environ | {"OMP_NUM_THREADS": "1"}, check=True)
    assert len(list(tmp_path.glob("claims/rows/small/*.jsonl"))) == 1


def test_what_others_trained_is_measured(made: Path, tmp_path: Path) -> None:
    """A finished run is measured as it is, though as many processes, or a GPU, trained it; an unfinished one is not."""
    study = read_study(write_tiny(tmp_path))
    job = jobs_of(study, "small")[0]
    shutil.copytree(made / "runs", tmp_path / "runs")
    folder = tmp_path / "runs" / "small" / job.name
    identity = folder / "run.json"
    identity.write_text(identity.read_text().replace('"world": 1', '"world": 8'))
    do_jobs([job], places_in(tmp_path))
    whole, again = (Record.of(place / "claims", job).rows() for place in (made, tmp_path))
    assert [row | {"seconds": 0} for row in again[1:]] == [row | {"seconds": 0} for row in whole[1:]]
    (path,) = checkpoint.found_in(folder / "checkpoints", checkpoint.LAST)
    tensors, facts = checkpoint.load(path)
    checkpoint.save(path, tensors, facts | {"position": facts["position"] | {"finished": False}})
    Record.of(tmp_path / "claims", job).path.unlink()
    with pytest.raises(ConfigError, match="world: was 8, now 1"):
        do_jobs([job], places_in(tmp_path))


def test_an_arm_that_diverges_does_not_stop_the_others(tmp_path: Path) -> None:
    study = read_study(
        write_tiny(
            tmp_path, TINY.replace('scheme = "erm"', 'scheme = "erm"\nchange = { optimizer = { lr = 1e30 } }')
        )
    )
    with pytest.raises(NumericalError, match="1 of 2 runs failed:\n  erm, seed 0: "):
        do_jobs(jobs_of(study, "small", seeds=[0]), places_in(tmp_path))
    assert [path.name.split("-")[2] for path in tmp_path.glob("claims/rows/small/*")] == ["nfm"]


def test_claims_are_made_of_rows_alone(made: Path, tmp_path: Path) -> None:
    study = read_study(made / "tiny.toml")
    shutil.copytree(made / "claims" / "rows", tmp_path / "claims" / "rows")
    claim = write_claim(study, tmp_path / "claims")
    text = (tmp_path / "claims" / "tiny.json").read_bytes()
    write_claim(study, tmp_path / "claims")
    assert (tmp_path / "claims" / "tiny.json").read_bytes() == text
    assert json.loads(text) == json.loads(json.dumps(claim))
    table, training = claim["scales"]["small"]["tables"]
    assert training["kind"] == "training"
    erm, nfm = table["lines"]
    rows = [row for row in rows_of(study, "small", tmp_path / "claims") if row["arm"] == "erm"]
    clean = [row["accuracy"] for row in rows if row.get("perturbation") == "clean"]
    assert erm["accuracy"][0]["mean"] == pytest.approx(sum(clean) / 2, abs=1e-4)
    assert erm["accuracy"][0]["seeds"] == 2
    assert nfm["accuracy"][0]["seeds"] == 1
    assert "lo" in nfm["accuracy"][0]
    assert "lo" not in erm["accuracy"][0]
    assert "published" not in erm  # of protocol pixel
    changed = Record.of(tmp_path / "claims", jobs_of(study, "small")[0])
    text_rows = changed.path.read_text().replace('"accuracy": ', '"accuracy": 1e-9, "was": ')
    changed.path.write_text(text_rows)
    assert claim_of(study, tmp_path / "claims") != claim


def test_seeds_beyond_the_studys_own_count(made: Path, tmp_path: Path) -> None:
    shutil.copytree(made / "claims" / "rows", tmp_path / "claims" / "rows")
    study = read_study(made / "tiny.toml")
    (job,) = jobs_of(study, "small", seeds=[7], arms=["nfm"])
    do_jobs([job], places_in(tmp_path))
    claim = claim_of(study, tmp_path / "claims")["scales"]["small"]
    assert claim["runs"] == {"erm": [0, 1], "nfm": [0, 7]}
    erm, nfm = claim["tables"][0]["lines"]
    assert (erm["accuracy"][0]["seeds"], nfm["accuracy"][0]["seeds"]) == (2, 2)
    other = read_study(write_tiny(tmp_path, TINY.replace("epochs = 1 }", "epochs = 3 }")))
    assert claim_of(other, tmp_path / "claims")["scales"]["small"]["runs"] == {"erm": [0, 1]}


def test_seeds_beyond_the_studys_own_count_in_a_file_of_many(tmp_path: Path) -> None:
    study = read_study(write_tiny(tmp_path, TINY.replace("watch = 20", 'watch = 20\ntogether = "all"')))
    for job in jobs_of(study, "small", seeds=[0, 7], arms=["erm"]):
        Record.of(tmp_path / "claims", job).add([{"kind": "run", "made_by": {}}])
    assert [row["train_seed"] for row in rows_of(study, "small", tmp_path / "claims")] == [0, 7]


def test_published_numbers_stand_beside_ours_with_their_marks(made: Path, tmp_path: Path) -> None:
    """Only under the protocol they were made by."""
    shutil.copytree(made / "claims" / "rows", tmp_path / "claims" / "rows")
    for path in (tmp_path / "claims" / "rows" / "small").iterdir():
        path.write_text(path.read_text().replace("cifar/pixel/40", "cifar/authors/40"))
    study = read_study(write_tiny(tmp_path, TINY.replace('protocol = "pixel"', 'protocol = "authors"')))
    table = claim_of(study, tmp_path / "claims")["scales"]["small"]["tables"][0]
    assert table["lines"][0]["published"] == [90.0, 80.0, 70.0, 60.0, 50.0, 40.0, 30.0]
    shown = show_table(table)
    assert "| Baseline | paper | 90.0 | 80.0 | 70.0† | 60.0 |" in shown
    assert "† Baseline, σ=0.2: a slip." in shown


def test_the_page_is_written_from_claims(made: Path, tmp_path: Path) -> None:
    shutil.copytree(made / "claims", tmp_path / "claims")
    study, places = read_study(made / "tiny.toml"), places_in(tmp_path)
    told = finish(study, "small", places)
    assert "claim:" in told
    page = write_page(places.claims, places.docs)
    text = page.read_text()
    assert "## Tiny" in text
    (trained, *_) = read_object(places.claims / "tiny.json", "a claim")["scales"]["small"]["training"]
    fit = f"{trained['label']} {100 * trained['probe_accuracy']:.1f}"
    assert f"Accuracy in % on clean training images after the last epoch: {fit}" in text
    assert "(images/results/tiny-small-training.png)" in text
    assert (places.docs / "images/results/tiny-small-training.png").stat().st_size > 1000
    write_page(places.claims, places.docs)
    assert page.read_text() == text
    with pytest.raises(DataError, match="expected the claims of at least one study"):
        write_page(tmp_path / "nowhere", places.docs)


def test_a_rehearsal_trains_nothing_and_tells_the_commands(tmp_path: Path) -> None:
    study = read_study(write_tiny(tmp_path))
    told = rehearse(study, "full", jobs_of(study, "full"), places_in(tmp_path), command="reproduce tiny")
    assert "real examples" in told
    assert "torchrun --standalone --nproc-per-node gpu -m nfm reproduce tiny\n" in told
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tiny.toml"]


def test_a_rehearsal_without_the_data_stands_in_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NFM_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)  # away from a folder `data`
    study = read_study(
        write_tiny(
            tmp_path,
            TINY.replace('name = "digits"', 'name = "cifar10"')
            .replace("mlp", "small_conv")
            .replace("units = 8", "width = 0.25"),
        )
    )
    told = rehearse(study, "small", jobs_of(study, "small"), places_in(tmp_path), command="")
    assert "random: cifar10" in told
    assert "(3, 32, 32)" in told


class TestCommandLine:
    def test_unknown_ids_are_refused_with_the_nearest(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["reproduce", "cifar10-resnet81"]) == 2
        assert "did you mean 'cifar10-resnet18'?" in capsys.readouterr().err
        assert main(["reproduce"]) == 2
        assert "`nfm reproduce --list` shows them" in capsys.readouterr().err
        assert main(["reproduce", "taylor", "--scale", "huge"]) == 2
        assert "expected one of small, full, got 'huge'" in capsys.readouterr().err

    def test_missing_data_is_told_before_anything_is_trained(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.chdir(tmp_path)
        monkeypatch.delenv("NFM_DATA", raising=False)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        for name, words in (
            ("imagenet-resnet50", "imagenet/train"),
            ("cifar10-resnet18", "cifar-10-batches-py"),
        ):
            assert main(["reproduce", name, "--scale", "full", "--seeds", "0", "--device", "cpu"]) == 3
            assert words in capsys.readouterr().err

    def test_from_rows_trains_nothing(
        self, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        shutil.copytree(made / "claims", tmp_path / "claims")
        write_tiny(tmp_path)
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(execution, "fit", no_training)
        assert main(["reproduce", "tiny.toml", "--from-rows"]) == 0
        assert "| Baseline | ours, n=2 |" in capsys.readouterr().out
        assert main(["reproduce", "--write-docs"]) == 0
        assert (tmp_path / "docs" / "results.md").exists()
        assert main(["reproduce", "tiny.toml", "--from-rows", "--scale", "full"]) == 3
        assert (
            "expected rows in claims/rows/full, got none; make them: nfm reproduce" in capsys.readouterr().err
        )

    @pytest.mark.parametrize(
        ("words", "told"),
        [
            (["taylor", "--list"], "--list: expected without taylor"),
            (["taylor", "--write-docs"], "--write-docs: expected without taylor"),
            (["taylor", "--from-rows", "--dry-run"], "--from-rows: expected without --dry-run"),
            (["taylor", "--from-rows", "--arms", "nfm"], "--from-rows: expected without --arms"),
            (["all", "--from-rows", "--seeds", "0"], "--from-rows: expected without --seeds"),
        ],
    )
    def test_flags_are_not_passed_over_in_silence(
        self, words: list[str], told: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["reproduce", *words]) == 2
        assert told in capsys.readouterr().err

    def test_commands_of_a_rehearsal_are_those_of_what_was_asked_for(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.chdir(tmp_path)
        write_tiny(tmp_path)
        asked = ["reproduce", "./tiny.toml", "--scale", "small", "--arms", "erm", "--claims", "my claims"]
        assert main([*asked, "--seeds", "5", "6", "--device", "cpu", "--dry-run"]) == 0
        told = capsys.readouterr().out.splitlines()
        command = "nfm reproduce ./tiny.toml --scale small --arms erm --claims 'my claims' --device cpu"
        assert [line.strip() for line in told[-5:]] == [
            f"CUDA_VISIBLE_DEVICES=0 {command} --seeds 5",
            f"CUDA_VISIBLE_DEVICES=1 {command} --seeds 6",
            "or every run over all GPUs of a machine, then one process that measures:",
            f"torchrun --standalone --nproc-per-node gpu -m {command} --seeds 5 6",
            f"{command} --seeds 5 6",
        ]
        assert main([*asked[:4], "--dry-run"]) == 0
        assert capsys.readouterr().out.endswith("\n  nfm reproduce ./tiny.toml --scale small\n")

    def test_what_a_study_does_not_have_is_refused(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(execution, "fit", no_training)
        before, _, after = TINY.partition("[full]")
        write_tiny(tmp_path, before + after[after.index("[[arms]]") :])
        for seeds in ([], ["--seeds", "7"]):
            assert main(["reproduce", "tiny.toml", "--scale", "full", *seeds]) == 2
            assert "--scale: tiny has no full scale; it has: small" in capsys.readouterr().err
        write_tiny(tmp_path, TINY.replace('scheme = "erm"', 'scheme = "erm"\nseeds = 1'))
        assert main(["reproduce", "tiny.toml", "--seeds", "1"]) == 2
        assert (
            "--seeds: no arm of tiny is to have 1; one that --arms names is trained with it"
            in capsys.readouterr().err
        )

    def test_the_list_tells_what_is_done(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["reproduce", "--list", "--claims", str(tmp_path)]) == 0
        told = capsys.readouterr().out
        assert "0/40" in told
        assert "toy-boundaries" in told


def test_a_study_without_rows_claims_nothing(tmp_path: Path) -> None:
    places = places_in(tmp_path)
    with pytest.raises(DataError, match=r"small scale: expected rows in .*, got none"):
        finish(read_study(write_tiny(tmp_path)), "small", places)
    assert not list(tmp_path.rglob("tiny.json"))
