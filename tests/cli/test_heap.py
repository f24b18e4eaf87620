"""Freed memory stays with the process of a verb: its next step faults no pages in."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

from nfm import cli

CHILD = """
import ctypes, resource, sys
ctypes.CDLL(None).prctl(41, 1, 0, 0, 0)  # PR_SET_THP_DISABLE: with big pages there are few faults anyway
import torch
from nfm.cli.heap import keep_freed_memory
print(keep_freed_memory() if sys.argv[1] == "kept" else "as it was")
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def step():  # what one step frees: 16 pieces of 8 MiB
    [torch.ones(2**21) for _ in range(16)]
for _ in range(4):
    step()
before = faults()
step()
print(faults() - before)
"""
SETTINGS = ("GLIBC_TUNABLES", "MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_")


def run(memory: str, **settings: str) -> list[str]:
    environment = {name: value for name, value in os.environ.items() if name not in SETTINGS} | settings
    command = [sys.executable, "-c", CHILD, memory]
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout.split()


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have no such setting")
def test_a_step_faults_nothing_in_that_the_last_one_freed() -> None:
    kept, few = run("kept")
    *_, many = run("given back")
    assert kept == "True"
    assert 8 * int(few) < int(many)
    assert int(many) > 16 * 2**23 / 2**16 / 2  # of pages, if they are no bigger than 64 kB


def test_the_users_own_settings_stay() -> None:
    assert run("kept", MALLOC_TRIM_THRESHOLD_="131072")[0] == "False"


def test_the_command_does_so_and_a_call_in_anothers_process_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    monkeypatch.setattr(cli, "keep_freed_memory", lambda: asked.append(True))
    monkeypatch.setattr(sys, "argv", ["nfm", "--version"])
    assert cli.main(["--version"]) == 0
    assert not asked
    assert cli.command() == 0
    assert asked
