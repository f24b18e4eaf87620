"""What it costs to start: ``import nfm`` and ``nfm --help`` against ``import torch``."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator

from benchmarks.side_by_side import Ratio, compare

ROUNDS = 5


def _running(*arguments: str) -> Callable[[], object]:
    return lambda: subprocess.run([sys.executable, *arguments], check=True, capture_output=True)


def measure() -> Iterator[Ratio]:
    """Yield the ratios."""
    torch = _running("-c", "import torch")
    yield compare("import nfm / import torch", _running("-c", "import torch, nfm"), torch, rounds=ROUNDS)
    yield compare("nfm --help / import torch", _running("-m", "nfm", "--help"), torch, rounds=ROUNDS)
