"""The command line under torchrun: one run, one writer; who is left alone ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nfm.train import checkpoint
from running import QUIET, assert_same_result, newest, rows_of

TRAIN = [
    "train", "--data", "digits", "--subset", "48", "--model", "mlp", "--batch-size", "16", "--ema", "0.9",
    "--set", "train.log_every=1",
]  # fmt: skip
LAUNCH = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "nfm"]
ENVIRONMENT = QUIET | {"GLOO_SOCKET_IFNAME": "lo"}


def torchrun(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*LAUNCH, *arguments], env=ENVIRONMENT, text=True, capture_output=True, timeout=600, check=False
    )


def test_torchrun_trains_one_run(tmp_path: Path) -> None:
    out = tmp_path / "run"
    ended = torchrun(*TRAIN, "--epochs", "2", "--out", str(out))
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("run: ") == 1
    assert [row["step"] for row in rows_of(out, "step")] == list(range(6))
    assert json.loads((out / "run.json").read_text())["world"] == 2
    _, facts = checkpoint.load(newest(out))
    assert facts["position"]["finished"]


LEAVING = """
import time
from pathlib import Path
import torch
from nfm.train.ranks import joined
def threads():
    return [name for path in Path("/proc/self/task").iterdir() if "gloo" in (name := (path / "comm").read_text())]
with joined("cpu") as ranks:
    wrapped = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
    wrapped(torch.ones(2, 2)).sum().backward()
    working = len(threads())
    del wrapped.reducer, wrapped.logger, wrapped
until = time.monotonic() + 20
while threads() and time.monotonic() < until:
    time.sleep(0.05)
print(f"{working > 0} {threads()}\\n", end="", flush=True)  # in one piece: two processes write
"""


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are told by name on Linux")
def test_the_threads_of_the_group_end_with_it(tmp_path: Path) -> None:
    """Those that outlived it ended the whole process by an abort, now and then, after all was done."""
    script = tmp_path / "leaving.py"
    script.write_text(LEAVING)
    ended = subprocess.run(
        [*LAUNCH[:-2], str(script)], env=ENVIRONMENT, text=True, capture_output=True, timeout=300, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines() == ["True []"] * 2


def started(out: Path, epochs: int) -> tuple[subprocess.Popen[bytes], list[int]]:
    """Start a long run; return its agent and the processes of its ranks, once they train."""
    command = [*LAUNCH, *TRAIN, "--epochs", str(epochs), "--out", str(out), "--resume", "auto"]
    agent = subprocess.Popen(
        [*command, "--set", "train.checkpoint_seconds=0.2"], env=ENVIRONMENT, stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    before = newest(out) if out.exists() else None
    while not checkpoint.found_in(out / "checkpoints", checkpoint.LAST) or newest(out) == before:
        assert agent.poll() is None
        time.sleep(0.05)
    children = Path(f"/proc/{agent.pid}/task/{agent.pid}/children").read_text().split()
    return agent, [int(child) for child in children if alive(int(child)) and "nfm" in command_of(int(child))]


def command_of(process: int) -> str:
    return Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode()


def alive(process: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{process}/status").read_text()
    except OSError:
        return False


def all_end(processes: list[int], seconds: float) -> bool:
    until = time.monotonic() + seconds
    while time.monotonic() < until and any(map(alive, processes)):
        time.sleep(0.05)
    return not any(map(alive, processes))


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_when_one_process_is_killed_all_end_and_the_run_can_go_on(tmp_path: Path, rank: int) -> None:
    epochs = 120
    assert torchrun(*TRAIN, "--epochs", str(epochs), "--out", str(tmp_path / "whole")).returncode == 0
    agent, ranks = started(tmp_path / "cut", epochs)
    assert len(ranks) == 2
    os.kill(ranks[rank], signal.SIGKILL)
    assert all_end(ranks, 120)
    assert agent.wait(120) != 0
    ended = torchrun(*TRAIN, "--epochs", str(epochs), "--out", str(tmp_path / "cut"), "--resume", "auto")
    assert ended.returncode == 0, ended.stderr
    assert_same_result(tmp_path / "whole", tmp_path / "cut")


@pytest.mark.slow
def test_when_the_agent_is_killed_the_processes_save_and_end(tmp_path: Path) -> None:
    agent, ranks = started(tmp_path / "run", 100_000)
    agent.kill()
    agent.wait()
    assert all_end(ranks, 120)
    checkpoint.load(newest(tmp_path / "run"))


@pytest.mark.slow
def test_a_signal_to_the_agent_ends_the_run_politely(tmp_path: Path) -> None:
    agent, ranks = started(tmp_path / "run", 100_000)
    before = newest(tmp_path / "run").name
    os.kill(agent.pid, signal.SIGTERM)
    agent.wait(120)
    assert all_end(ranks, 120)
    assert newest(tmp_path / "run").name > before
    checkpoint.load(newest(tmp_path / "run"))
