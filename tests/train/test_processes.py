"""Two processes train one network: equal after every step, one writer, one end; and gone on from to the byte."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from ranked import end_all, flat, start_ranks, train_ranks

from nfm.errors import EnvironmentProblem
from nfm.train import checkpoint
from nfm.train.ranks import Ranks, joined
from nfm.train.schedule import Schedule
from running import assert_different_result, assert_same_result, digits, network, newest, rows_of, train


@pytest.mark.parametrize(
    "settings", [{}, {"name": "small_conv", "accumulate": 2, "ema": 0.9}], ids=["mlp", "conv"]
)
def test_parameters_are_equal_after_every_step_and_draws_are_not(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    first, second = train_ranks(tmp_path / "report", tmp_path / "run", epochs=4, **settings)
    assert len(first["equal"]) == 12 * settings.get("accumulate", 1)
    assert set(first["equal"]) == set(second["equal"]) == {True}
    assert first["weights"] == second["weights"]
    assert first["buffers"] == second["buffers"]
    same = [one == other for one, other in zip(first["draws"], second["draws"], strict=True)]
    assert not any(same)
    assert [row["step"] for row in rows_of(tmp_path / "run", "step")] == list(range(12))  # one writer
    assert json.loads((tmp_path / "run" / "run.json").read_text())["world"] == 2


def test_two_processes_do_what_one_does(tmp_path: Path) -> None:
    """Without mixing, the halves of a batch give the gradient of the whole; rows tell the same."""
    settings = {"scheme": "erm", "epochs": 2, "batch_size": 20}  # the last batch is of 8
    first, _ = train_ranks(tmp_path / "report", tmp_path / "two", **settings)
    model = network(digits())
    train(tmp_path / "one", model=model, schedule=Schedule("cosine"), **settings)
    expected = flat(model)
    difference = (torch.tensor(first["weights"]) - expected).abs().max()
    assert difference <= 1e-6 * expected.abs().max()
    for one, two in zip(rows_of(tmp_path / "one", "epoch"), rows_of(tmp_path / "two", "epoch"), strict=True):
        assert one.keys() == two.keys()
        for name in ("train_loss", "train_accuracy_weighted", "probe_accuracy", "validation_loss"):
            assert two[name] == pytest.approx(one[name], rel=1e-5)
    other, _ = train_ranks(tmp_path / "report", None, **settings | {"seed": 1})
    assert (torch.tensor(other["weights"]) - expected).abs().max() > 1e-3  # the control


@pytest.mark.parametrize(("batch", "size"), [(7, 48), (9, 48), (10, 48), (47, 48), (2, 47), (3, 49), (2, 48)])
def test_uneven_batches_do_not_hang(tmp_path: Path, batch: int, size: int) -> None:
    first, second = train_ranks(
        tmp_path / "report", None, scheme="nfm", batch_size=batch, size=size, epochs=1
    )
    assert "error" not in first
    assert len(first["equal"]) == len(second["equal"])
    sizes = [len(draw) - 2 for one in (first, second) for draw in one["draws"]]
    assert sum(sizes) == size  # each example once
    assert min(sizes) >= 1


def interrupted(tmp_path: Path, moments: random.Random, **settings: Any) -> None:
    """Kill both processes at a random moment of a run."""
    processes = start_ranks(tmp_path / "report", tmp_path / "cut", resume=True, **settings)
    checkpoints = tmp_path / "cut" / "checkpoints"
    while processes[0].is_alive() and not checkpoint.found_in(checkpoints, checkpoint.LAST):
        time.sleep(0.01)
    time.sleep(moments.uniform(0, 0.3))
    for process in processes:
        process.kill()
    end_all(processes)


KEPT = {"name": "small_conv", "ema": 0.9, "epochs": 12, "accumulate": 2}


def test_processes_go_on_to_the_byte_from_every_place_in_an_epoch(tmp_path: Path) -> None:
    """Also from its end, where running statistics differ between processes, and sums over the epoch."""
    settings = {"name": "small_conv", "ema": 0.9, "checkpoint_seconds": 60.0}
    train_ranks(tmp_path / "report", tmp_path / "whole", **settings)
    for step in range(4):
        cut = tmp_path / f"cut{step}"
        told = train_ranks(tmp_path / "report", cut, signal_at=step, **settings)
        assert [one["error"] for one in told] == [
            f"Stopped: stopped after step {step + 2}; the state is saved"
        ] * 2
        train_ranks(tmp_path / "report", cut, resume=True, **settings)
        assert_same_result(tmp_path / "whole", cut)


def test_killed_processes_go_on_to_the_byte(tmp_path: Path) -> None:
    train_ranks(tmp_path / "report", tmp_path / "whole", **KEPT)
    moments = random.Random(1)
    for _ in range(3):
        interrupted(tmp_path, moments, **KEPT)
    train_ranks(tmp_path / "report", tmp_path / "cut", resume=True, **KEPT)
    assert_same_result(tmp_path / "whole", tmp_path / "cut")
    train_ranks(tmp_path / "report", tmp_path / "other", **KEPT | {"seed": 1})
    assert_different_result(tmp_path / "whole", tmp_path / "other")


@pytest.mark.parametrize("rank", [0, 1])
def test_a_signal_to_one_stops_all_politely(tmp_path: Path, rank: int) -> None:
    settings = KEPT | {"epochs": 60, "checkpoint_seconds": 60.0}
    processes = start_ranks(tmp_path / "report", tmp_path / "cut", **settings)
    while not (tmp_path / "cut" / "run.json").exists():
        time.sleep(0.01)
    time.sleep(0.3)
    os.kill(processes[rank].pid, signal.SIGTERM)
    assert end_all(processes) == [143, 143]
    _, facts = checkpoint.load(newest(tmp_path / "cut"))
    assert 0 < 3 * facts["position"]["epoch"] + facts["position"]["step"] < 180


def test_differing_settings_are_refused_by_name(tmp_path: Path) -> None:
    told = train_ranks(tmp_path / "report", tmp_path / "run", one={"clip": 0.5})
    for one in told:
        assert one["error"].startswith("UsageError: the run: expected the same in all 2 processes, got ")
        assert "settings.clip: 0.0 in process 0, 0.5 in process 1" in one["error"]
    assert not (tmp_path / "run").exists()


def test_differing_data_are_refused(tmp_path: Path) -> None:
    told = train_ranks(tmp_path / "report", None, one={"size": 64})
    assert all("data: 'digits " in one["error"] for one in told)


def test_a_folder_that_is_refused_is_refused_in_all(tmp_path: Path) -> None:
    train_ranks(tmp_path / "report", tmp_path / "run", epochs=1)
    told = train_ranks(tmp_path / "report", tmp_path / "run", epochs=1)
    assert all("holds a run already" in one["error"] for one in told)


def test_a_bad_number_in_one_stops_all_in_the_same_step(tmp_path: Path) -> None:
    first, second = train_ranks(tmp_path / "report", tmp_path / "run", poison=4)
    for told in (first, second):
        assert told["error"].startswith("NumericalError: step 4: ")
    assert first["weights"] == second["weights"]
    tensors, _ = checkpoint.load(newest(tmp_path / "run"))
    saved = torch.cat(
        [v.reshape(-1) for n, v in tensors.items() if n.startswith("model.") and "norm" not in n]
    )
    assert sorted(saved.tolist()) == sorted(first["weights"])  # the update of step 4 was not made


def test_when_one_breaks_no_other_hangs(tmp_path: Path) -> None:
    processes = start_ranks(tmp_path / "report", tmp_path / "run", broken=4)
    codes = end_all(processes)
    assert None not in codes, "a process hangs"
    assert 0 not in codes
    checkpoint.load(newest(tmp_path / "run"))


class TestJoining:
    @pytest.fixture(autouse=True)
    def clean(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK"):
            monkeypatch.delenv(name, raising=False)

    def join(self) -> Ranks:
        with joined("cpu") as ranks:
            return ranks

    def test_alone_without_torchrun(self) -> None:
        ranks = self.join()
        assert (ranks.rank, ranks.world, ranks.first, ranks.orphaned) == (0, 1, True, False)

    @pytest.mark.parametrize(
        ("variables", "told"),
        [
            ({"RANK": "0"}, "expected both RANK and WORLD_SIZE"),
            ({"WORLD_SIZE": "2"}, "expected both RANK and WORLD_SIZE"),
            ({"RANK": "0", "WORLD_SIZE": "2"}, "MASTER_ADDR=not set"),
            (
                {"RANK": "zero", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"},
                "RANK=zero",
            ),
        ],
    )
    def test_half_an_environment_is_refused(
        self, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], told: str
    ) -> None:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        with pytest.raises(EnvironmentProblem, match=told):
            self.join()

    def test_a_taken_port_is_told(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = str(taken.getsockname()[1])
            for name, value in {
                "RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port,
            }.items():  # fmt: skip
                monkeypatch.setenv(name, value)
            with pytest.raises(EnvironmentProblem, match=f"MASTER_PORT={port}"):
                self.join()

    def test_one_whose_parent_is_gone_knows(self) -> None:
        assert not Ranks(parent=os.getppid()).orphaned
        assert Ranks(parent=1 if os.getppid() != 1 else 2).orphaned
