"""Freed memory stays with the process of the command line: its next step faults no pages in."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

from nfm import cli

CHILD = """
import ctypes, sys
import torch
from nfm.cli.heap import keep_freed_memory

names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"  # of mallinfo2(3)
class Told(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in names.split()]
mallinfo2 = ctypes.CDLL(None).mallinfo2
mallinfo2.restype = Told

print(keep_freed_memory() if sys.argv[1] == "kept" else "as-it-was")
before = mallinfo2()
piece = torch.ones(12 * 2**20)  # 48 MiB
during = mallinfo2()
del piece
print(during.hblkhd - before.hblkhd)  # bytes mapped on their own, which are gone when they are freed
print(during.arena - before.arena, mallinfo2().arena - before.arena)  # by which the heap grew, and still is bigger
"""
PIECE = 48 * 2**20  # more than the C library's threshold for pieces mapped on their own can be
SETTINGS = (
    "GLIBC_TUNABLES",
    "MALLOC_TRIM_THRESHOLD_",
    "MALLOC_MMAP_THRESHOLD_",
    "MALLOC_MMAP_MAX_",
    "MALLOC_ARENA_MAX",
)


def run(memory: str, **settings: str) -> list[str]:
    environment = {name: value for name, value in os.environ.items() if name not in SETTINGS} | settings
    command = [sys.executable, "-c", CHILD, memory]
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout.split()


@pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc" or tuple(map(int, platform.libc_ver()[1].split("."))) < (2, 33),
    reason="tells of its heap by mallinfo2, which glibc has since 2.33",
)
def test_what_a_step_frees_stays_in_the_heap() -> None:
    kept, mapped, grown, stays = run("kept")
    assert (kept, int(mapped)) == ("True", 0)
    assert int(grown) == int(stays) > 0.9 * PIECE  # some of it was there
    _, mapped, grown, _ = run("given back")
    assert int(mapped) >= PIECE > 2 * int(grown)


@pytest.mark.parametrize("name", SETTINGS[1:])
def test_the_users_own_settings_stay(name: str) -> None:
    assert run("kept", **{name: "131072"})[0] == "False"


def test_the_command_does_so_and_a_call_in_anothers_process_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    monkeypatch.setattr(cli, "keep_freed_memory", lambda: asked.append(True))
    monkeypatch.setattr(sys, "argv", ["nfm", "--version"])
    assert cli.main(["--version"]) == 0
    assert not asked
    assert cli.command() == 0
    assert asked
