"""What keeping freed memory saves and costs (`nfm.cli.heap`): training steps with and without, processes by turns."""

from __future__ import annotations

import platform
import subprocess
import sys
from collections.abc import Iterator

from benchmarks.side_by_side import Ratio

ROUNDS, STEPS = 3, 5
CHILD = f"""
import statistics, sys
from benchmarks.networks import peak_memory, preact_resnet18, training
from benchmarks.side_by_side import seconds
from nfm.cli.heap import keep_freed_memory
from nfm.method.presets import preset
if sys.argv[1] == "kept":
    keep_freed_memory()
method = preset("nfm")
step = training(preact_resnet18(0.25), lambda model, x, y: method(model, x, y).loss, steps=1)
step()
print(statistics.median(seconds(step) for _ in range({STEPS})), peak_memory())
"""


def _step_and_peak(memory: str) -> list[float]:
    """Return the median of a process's steps in seconds, and its peak in MiB."""
    command = [sys.executable, "-c", CHILD, memory]
    told = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return [float(number) for number in told.split()]


def measure() -> Iterator[Ratio]:
    """Yield the ratios, where the C library has such a setting."""
    if platform.libc_ver()[0] != "glibc":
        return
    ways = ("kept", "given back")
    turns = [
        {way: _step_and_peak(way) for way in (ways if turn % 2 else reversed(ways))} for turn in range(ROUNDS)
    ]
    for place, (what, unit) in enumerate((("a step", "s"), ("peak memory", "MiB"))):
        pairs = [(taken["kept"][place], taken["given back"][place]) for taken in turns]
        yield Ratio.of(f"{what} with freed memory kept / given back, width 1/4", pairs, unit=unit)
