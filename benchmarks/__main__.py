"""``python -m benchmarks``: every ratio, on this machine, now."""

from __future__ import annotations

import torch

from benchmarks import evaluation, startup, steps


def main() -> None:
    """Print the ratios."""
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads; median of ratios [quartiles]")
    for part in (startup, steps, evaluation):
        for ratio in part.measure():
            print(ratio, flush=True)


main()
