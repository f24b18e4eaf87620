"""``python -m benchmarks [PART ...]``: every ratio, on this machine, now, against its threshold.

A ratio is time (or memory) of ours over that of a reference, measured by turns in one run. Rows are appended
to benchmarks/rows.jsonl; ``--docs`` writes the table of docs/performance.md from the last of them. The exit code
is 1 where a threshold is not met.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time

import torch

from benchmarks.neighbours import Clock, stolen_since
from benchmarks.record import ABOVE, ROWS, UNDECIDED, Thresholds, to_row, write_tables
from nfm.results import append_rows, provenance

PARTS = (
    "startup", "operation", "steps", "loop", "heap", "pipeline", "memory", "compiled", "growth", "ranks", "schemes",
    "peers", "evaluation", "corruptions",
)  # fmt: skip


def main() -> None:
    """Measure the parts asked for, or all."""
    options = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    options.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)} (default: all)")
    options.add_argument("--docs", action="store_true", help="measure nothing: write the table of the docs")
    given = options.parse_args()
    if unknown := [part for part in given.parts if part not in PARTS]:
        options.error(f"expected parts of {', '.join(PARTS)}; got {', '.join(unknown)}")
    if given.docs:
        write_tables()
        return
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads; median of ratios [quartiles]")
    began, clock = time.monotonic(), Clock.read()
    run = _now()
    verdicts = [verdict for part in given.parts or PARTS for verdict in _measure(part, run, began)]
    print(f"{(time.monotonic() - began) / 60:.1f} minutes")
    if (stolen := stolen_since(clock)) is not None:
        print(f"other machines took {stolen:.1%} of the processors' time")
    for word in (UNDECIDED, ABOVE):
        if found := [name for name, verdict in verdicts if verdict.startswith(word)]:
            print(f"{len(found)} {word}: {'; '.join(found)}")
    if any(verdict.startswith(ABOVE) for _, verdict in verdicts):
        sys.exit(1)


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _measure(part: str, run: str, run_began: float) -> list[tuple[str, str]]:
    """Print the ratios of a part of a run and keep their rows; return their names and verdicts."""
    thresholds, verdicts = Thresholds.read(), []
    module = importlib.import_module(f"benchmarks.{part}")
    about, clock = {"part": part, "began": _now(), "run": run} | provenance(), Clock.read()
    for ratio in module.measure():
        verdict = thresholds.verdict(ratio)
        print(f"{ratio}  {verdict}", flush=True)
        machine = {"stolen": stolen_since(clock), "run_seconds": time.monotonic() - run_began}
        append_rows(ROWS, [to_row(ratio, thresholds) | about | machine])
        verdicts.append((ratio.name, verdict))
    return verdicts


if __name__ == "__main__":
    main()
