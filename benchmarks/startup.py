"""What it costs to start: ``import nfm`` and ``nfm --help`` against ``import torch``."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator

from benchmarks.side_by_side import Ratio, compare_all

ROUNDS = 5


def _running(*arguments: str) -> Callable[[], object]:
    return lambda: subprocess.run([sys.executable, *arguments], check=True, capture_output=True)


def measure() -> Iterator[Ratio]:
    """Yield the ratios."""
    ours = {
        "import nfm / import torch": _running("-c", "import torch, nfm"),
        "nfm --help / import torch": _running("-m", "nfm", "--help"),
    }
    yield from compare_all(ours, _running("-c", "import torch"), rounds=ROUNDS)
