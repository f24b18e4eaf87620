"""What keeping freed memory saves (`nfm.cli.heap`): training steps with and without it, in processes by turns."""

from __future__ import annotations

import platform
import subprocess
import sys
from collections.abc import Iterator

from benchmarks.side_by_side import Ratio

ROUNDS, STEPS = 2, 5
CHILD = f"""
import statistics, sys
from benchmarks.networks import preact_resnet18, training
from benchmarks.side_by_side import seconds
from nfm.cli.heap import keep_freed_memory
from nfm.method.presets import preset
if sys.argv[1] == "kept":
    keep_freed_memory()
method = preset("nfm")
step = training(preact_resnet18(0.25), lambda model, x, y: method(model, x, y).loss, steps=1)
step()
print(statistics.median(seconds(step) for _ in range({STEPS})))
"""


def _median_step(memory: str) -> float:
    command = [sys.executable, "-c", CHILD, memory]
    return float(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def measure() -> Iterator[Ratio]:
    """Yield the ratio, where the C library has such a setting."""
    if platform.libc_ver()[0] != "glibc":
        return
    name, ways = "a step with freed memory kept / given back, width 1/4", ("kept", "given back")
    times = [
        {way: _median_step(way) for way in (ways if turn % 2 else reversed(ways))} for turn in range(ROUNDS)
    ]
    yield Ratio.of(name, [(taken["kept"], taken["given back"]) for taken in times])
