"""How much memory NFM takes: the peak of a few training steps over that of plain training, a process each.

The C library keeps freed memory for later, more or less of it by chance, unless each big piece is mapped on its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

from benchmarks.side_by_side import Ratio

ROUNDS, STEPS = 2, 3
CHILD = """
import sys
from benchmarks.networks import peak_memory, preact_resnet18, training
from nfm.method.presets import preset
method = preset(sys.argv[1])
training(preact_resnet18(0.25), lambda model, x, y: method(model, x, y).loss, steps={steps})()
print(peak_memory())
"""


def _peak(scheme: str) -> float:
    """Return the peak of a process in MiB."""
    command = [sys.executable, "-c", CHILD.format(steps=STEPS), scheme]
    mapped = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536"}
    return float(subprocess.run(command, check=True, capture_output=True, text=True, env=mapped).stdout)


def measure() -> Iterator[Ratio]:
    """Yield the ratio."""
    pairs = [(_peak("nfm"), _peak("erm")) for _ in range(ROUNDS)]
    yield Ratio.of("nfm peak memory / erm peak memory, width 1/4", pairs, unit="MiB")
