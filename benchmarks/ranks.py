"""Two processes under torchrun with a thread each, against one process with two threads: the same epochs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

from benchmarks.side_by_side import Ratio

ROUNDS = 2
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")


def _seconds(*launcher: str, threads: int) -> float:
    """Return how long the training takes inside a process, start and imports left out."""
    module = ("-m", "benchmarks.ranks_training", str(threads))
    command = [sys.executable, *launcher, *module]
    return float(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def measure() -> Iterator[Ratio]:
    """Yield the ratio."""
    pairs = [(_seconds(*TORCHRUN, threads=1), _seconds(threads=2)) for _ in range(ROUNDS)]
    yield Ratio.of("2 processes of a thread / 1 process of 2 threads, nfm.fit", pairs)
