"""The folder of a run: one process at a time, one run for ever, and nobody else's files."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from nfm.core.noise import Noise
from nfm.data import CropFlip
from nfm.errors import ConfigError, EnvironmentProblem, UsageError
from nfm.method.cutmix import CutMix
from nfm.method.presets import preset
from nfm.train.folder import RunFolder, check_name, read_identity
from nfm.train.optim import Optimizer, freeze
from nfm.train.schedule import Schedule
from running import InterruptAfter, assert_same_result, digits, network, start, train

BASE: dict[str, Any] = {
    "optimizer": Optimizer(lr=0.1), "schedule": Schedule("cosine"), "epochs": 1, "method": preset("nfm"),
}  # fmt: skip


def files_in(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


class TestLock:
    def test_a_second_process_is_refused_by_name(self, tmp_path: Path) -> None:
        out = tmp_path / "run"
        process = start(train, out, epochs=1000)
        while not (out / "run.json").exists():
            time.sleep(0.01)
        try:
            with pytest.raises(EnvironmentProblem) as told:
                train(out, resume=True, epochs=1000)
        finally:
            os.kill(process.pid, signal.SIGKILL)
            process.join()
        assert f"is in use by process {process.pid} on {socket.gethostname()}" in str(told.value)
        assert told.value.exit_code == 5
        train(out, overwrite=True, epochs=1)  # the lock of a killed process is nobody's

    def test_it_is_let_go_of_after_any_end(self, tmp_path: Path) -> None:
        def broken(*args: Any, **options: Any) -> Any:
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            train(tmp_path / "run", method=broken)
        train(tmp_path / "run", overwrite=True, epochs=1)
        train(tmp_path / "run", overwrite=True, epochs=1)

    def test_overwriting_a_run_in_use_is_refused_and_deletes_nothing(self, tmp_path: Path) -> None:
        train(tmp_path / "run", epochs=1)
        before = files_in(tmp_path / "run")
        holder = RunFolder(tmp_path / "run")
        holder._take_lock()
        with pytest.raises(EnvironmentProblem, match="in use"):
            train(tmp_path / "run", overwrite=True, epochs=1)
        holder.close()
        assert before.keys() == files_in(tmp_path / "run").keys()


BAD_NAMES = ["", ".", "..", "-rf", "a\nb", "a\x00b", "x" * 201, "é" * 101, "‮abc", "a\x1b[0m"]


class TestNames:
    @pytest.mark.parametrize("name", BAD_NAMES, ids=lambda name: repr(name)[:12])
    def test_bad_ones_are_refused(self, tmp_path: Path, name: str) -> None:
        with pytest.raises(UsageError, match="out: expected a folder with a printable name"):
            check_name(Path(name))

    @pytest.mark.parametrize(
        "name", ["run", "a b", "x" * 200, "<script>alert(1)</script>"[:8], "日本", "a-b_c.1"]
    )
    def test_others_are_taken(self, name: str) -> None:
        assert check_name(Path("runs") / name) == Path("runs") / name

    def test_a_path_no_disk_can_hold_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(EnvironmentProblem, match="File name too long"):
            train(tmp_path / ("x" * 300) / "run")

    def test_a_file_in_its_place_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "run").write_text("mine")
        with pytest.raises(EnvironmentProblem, match=r"expected a folder, .*run is a file"):
            train(tmp_path / "run")
        with pytest.raises(EnvironmentProblem, match="Not a directory"):
            train(tmp_path / "run" / "below")
        assert (tmp_path / "run").read_text() == "mine"

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
    def test_a_folder_one_may_not_write_to_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "locked").mkdir(mode=0o500)
        with pytest.raises(EnvironmentProblem, match="Permission denied"):
            train(tmp_path / "locked" / "run")

    def test_a_folder_that_cannot_be_made_is_refused(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(*args: Any, **options: Any) -> None:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(Path, "mkdir", refuse)
        with pytest.raises(EnvironmentProblem, match=r"out: cannot write to .*Permission denied"):
            train(tmp_path / "run")


class TestWhatIsThere:
    def test_a_run_is_not_started_over_by_accident(self, tmp_path: Path) -> None:
        train(tmp_path / "run", **BASE)
        before = files_in(tmp_path / "run")
        with pytest.raises(UsageError, match="--resume auto goes on with it, --overwrite starts anew"):
            train(tmp_path / "run", **BASE)
        assert files_in(tmp_path / "run") == before

    def test_overwrite_starts_anew(self, tmp_path: Path) -> None:
        train(tmp_path / "run", **BASE | {"seed": 4})
        train(tmp_path / "run", overwrite=True, **BASE)
        train(tmp_path / "fresh", **BASE)
        assert_same_result(tmp_path / "run", tmp_path / "fresh")

    def test_overwrite_leaves_the_files_of_others_alone(self, tmp_path: Path) -> None:
        """A folder that is no run's may have files of the same names."""
        precious = tmp_path / "run" / "checkpoints" / "mine.pt"
        precious.parent.mkdir(parents=True)
        precious.write_text("a month of work")
        train(tmp_path / "run", overwrite=True, **BASE)
        assert precious.read_text() == "a month of work"

    def test_a_finished_run_has_nothing_to_do(self, tmp_path: Path) -> None:
        train(tmp_path / "run", **BASE)
        before = files_in(tmp_path / "run")
        bar = InterruptAfter()
        made = train(tmp_path / "run", resume=True, progress=bar, **BASE)
        assert bar.notes == ["nothing to do: this run is finished"]
        assert made.resumed
        assert [row["kind"] for row in made.rows].count("epoch") == 1
        after = files_in(tmp_path / "run")
        assert {name for name in before if before[name] != after[name]} <= {".lock"}
        assert after.keys() == before.keys()

    def test_resume_without_a_run_starts_one(self, tmp_path: Path) -> None:
        assert not train(tmp_path / "run", resume=True, **BASE).resumed

    def test_what_contradicts_itself_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="got both"):
            train(tmp_path / "run", resume=True, overwrite=True)
        with pytest.raises(UsageError, match="expected out"):
            train(resume=True)

    @pytest.mark.parametrize("content", ["", "{", "[]", "[" * 100_000, "3"])
    def test_a_damaged_identity_is_refused(self, tmp_path: Path, content: str) -> None:
        train(tmp_path / "run", **BASE)
        (tmp_path / "run" / "run.json").write_text(content)
        with pytest.raises(UsageError, match="run"):
            train(tmp_path / "run", resume=True, **BASE)
        train(tmp_path / "run", overwrite=True, **BASE)


def relabelled() -> Any:
    data = digits()
    return replace(data, train=data.train.relabel(data.train.labels.flip(0)))


def frozen() -> Any:
    model = network(digits())
    freeze(model, ("hidden1.*",))
    return model


CHANGES: dict[str, tuple[dict[str, Any], str]] = {
    "epochs": ({"epochs": 2}, "settings.epochs: was 1, now 2"),
    "seed": ({"seed": 1}, "settings.seed: was 0, now 1"),
    "clip": ({"clip": 1.0}, "settings.clip: was 0.0, now 1.0"),
    "log_every": ({"log_every": 2}, "settings.log_every: was 1, now 2"),
    "ema": ({"ema": 0.5}, "settings.ema: was 0.0, now 0.5"),
    "lr": ({"optimizer": Optimizer(lr=0.2)}, "optimizer.lr: was 0.1, now 0.2"),
    "rates": ({"optimizer": Optimizer(lr=0.1, rates={"head*": 2.0})}, r"optimizer.rates.head\*: was None, now 2.0"),
    "schedule": ({"schedule": Schedule("step")}, "schedule.name: was 'cosine', now 'step'"),
    "alpha": ({"method": preset("nfm", alpha=0.5, beta=1.0)}, "method.alpha: was 1.0, now 0.5"),
    "noise": ({"method": preset("nfm", noise=Noise(0.1, 0.2))}, "method.noise.add: was 0.4, now 0.1"),
    "dominant": ({"method": preset("nfm", dominant=True)}, "method.dominant: was False, now True"),
    "method": ({"method": lambda *args, **options: None}, "method: was None, now '<function"),
    "subclass": ({"method": CutMix()}, r"method: was None, now 'CutMix\("),
    "data": ({"data": relabelled()}, "data: was 'digits "),
    "model": ({"options": {"units": 9}}, "model.shapes: was "),
    "network": ({"name": "small_conv"}, "model.class: was 'MLP', now 'SmallConv'"),
    "frozen": ({"model": frozen()}, r"model.frozen: was \[\], now \['hidden1"),
    "augment": ({"augment": CropFlip(pad=1)}, r"augment: was 'None', now .CropFlip\(pad=1"),
    "criterion": ({"criterion": torch.nn.CrossEntropyLoss()}, r"criterion: was 'None', now 'CrossEntropyLoss\("),
}  # fmt: skip


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("changes") / "run"
    train(out, **BASE)
    return out


class TestChanges:
    @pytest.mark.parametrize("change", CHANGES)
    def test_each_is_told_by_its_key_and_refused(self, there: Path, change: str) -> None:
        before = files_in(there)
        settings, told = CHANGES[change]
        with pytest.raises(ConfigError, match=told) as error:
            train(there, resume=True, **(BASE | settings))
        assert "--overwrite" in str(error.value)
        if change not in ("method", "network", "subclass"):  # leaves only: nothing else is listed
            assert len(str(error.value).splitlines()) == 3
        assert files_in(there) == before

    @pytest.mark.parametrize("settings", [{}, {"workers": 2}, {"checkpoint_seconds": 9.0}])
    def test_what_changes_no_result_may_change(self, there: Path, settings: dict[str, Any]) -> None:
        assert train(there, resume=True, **(BASE | settings)).resumed

    def test_all_are_told_at_once(self, there: Path) -> None:
        with pytest.raises(ConfigError) as error:
            train(
                there,
                resume=True,
                **BASE | {"epochs": 3, "clip": 1.0, "optimizer": Optimizer("adam", lr=0.1)},
            )
        for key in ("settings.epochs", "settings.clip", "optimizer.name"):
            assert f"\n  {key}: was " in str(error.value)

    def test_a_scheme_of_ones_own_may_lie_elsewhere_in_memory(self, tmp_path: Path) -> None:
        class Own:
            def __call__(self, *args: Any, **options: Any) -> Any:
                return preset("erm")(*args, **options)

        train(tmp_path / "run", **BASE | {"method": Own()})
        assert train(tmp_path / "run", resume=True, **BASE | {"method": Own()}).resumed


def test_the_identity_is_readable_and_says_who_holds_it(tmp_path: Path) -> None:
    train(tmp_path / "run", **BASE)
    identity = json.loads((tmp_path / "run" / "run.json").read_text())
    assert identity["method"]["noise"]["add"] == 0.4
    assert identity["settings"]["batch_size"] == 16
    assert "workers" not in identity["settings"]
    assert (tmp_path / "run" / ".lock").read_text() == f"process {os.getpid()} on {socket.gethostname()}\n"


def test_a_folder_of_runs_is_told_from_a_run(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"got one without run\.json$"):
        read_identity(tmp_path)
    train(tmp_path / "first", **BASE)
    with pytest.raises(UsageError, match=r"without run\.json; it holds runs: first$"):
        read_identity(tmp_path)
    assert read_identity(tmp_path / "first")
