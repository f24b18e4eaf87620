"""``python -m benchmarks.profile``: where the time of a small training run and of an evaluation goes."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.networks import BATCH, preact_resnet18, random_data
from nfm.evaluate import SUITES, evaluate
from nfm.method.presets import preset
from nfm.train.fit import fit
from nfm.train.progress import Silent

STEPS, IMAGES, SHOWN = 10, 500, 8


def _train() -> None:
    data = random_data(BATCH * STEPS)
    fit(preact_resnet18(0.25), preset("nfm"), data, epochs=1, batch_size=BATCH, progress=Silent())


def _evaluate() -> None:
    examples = random_data(IMAGES).test
    evaluate(preact_resnet18(0.25).eval(), examples, SUITES["quick"])


def _shares(work: Callable[[], None]) -> list[tuple[str, float]]:
    """Return the operations of `work` that take most of its time themselves, with their shares."""
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        work()
    rows = sorted(seen.key_averages(), key=lambda row: -row.self_cpu_time_total)
    total = sum(row.self_cpu_time_total for row in rows)
    return [(row.key, row.self_cpu_time_total / total) for row in rows[:SHOWN]]


def main() -> None:
    """Print both profiles."""
    for name, work in (("training", _train), ("evaluation", _evaluate)):
        print(f"{name}, torch {torch.__version__}, {torch.get_num_threads()} threads")
        for operation, share in _shares(work):
            print(f"  {100 * share:5.1f}%  {operation}")


if __name__ == "__main__":
    main()
