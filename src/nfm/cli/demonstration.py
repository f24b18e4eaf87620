"""What ``nfm demo`` does, in the words of the library."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch

from nfm.data import load
from nfm.data.examples import DataSet
from nfm.evaluate.suites import noise_suite
from nfm.evaluate.sweep import evaluate
from nfm.method.presets import preset
from nfm.models import build
from nfm.plots.canvas import save_figure
from nfm.plots.curves import curves
from nfm.plots.table import table
from nfm.results import Row, provenance, to_line, write_atomically
from nfm.train.fit import fit
from nfm.train.optim import Optimizer
from nfm.train.progress import choose_progress
from nfm.train.schedule import Schedule

WIDTH = 0.5  # of the small network: 24,000 parameters


def demonstrate(
    out: Path, *, schemes: Sequence[str], seeds: Iterable[int], epochs: int,
    white: Sequence[float], salt: Sequence[float],
) -> list[Row]:  # fmt: skip
    """Train each scheme with each seed on digits, measure it under noise; write rows, table, picture."""
    data = load("digits", validation=0)
    seeds = list(seeds)
    print(
        f"digits: {len(data.train)} training and {len(data.test)} test images of 8x8 pixels; "
        f"{len(schemes)} schemes x {len(seeds)} seeds x {epochs} epochs"
    )
    rows: list[Row] = []
    with _one_thread():
        for seed in seeds:
            for scheme in schemes:
                rows += _one(data, scheme, seed, epochs=epochs, white=white, salt=salt)
    made_by = provenance()
    write_atomically(
        out / "rows.jsonl", "".join(to_line(row | {"made_by": made_by}) for row in rows).encode()
    )
    text = table(rows)
    write_atomically(out / "table.txt", text.encode())
    picture = save_figure(curves(rows, title="Digits under noise"), out / "curves.png")
    print(f"\n{text}\n\nrows:    {out / 'rows.jsonl'}\npicture: {picture}")
    return rows


@contextmanager
def _one_thread() -> Iterator[None]:
    """Compute on one thread: enough for 8x8 pixels, and the same bits on any number of cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _one(
    data: DataSet, scheme: str, seed: int, *, epochs: int, white: Sequence[float], salt: Sequence[float]
) -> list[Row]:
    channels, _, size = data.shape
    model = build(
        "small_conv", num_classes=data.num_classes, in_channels=channels, image_size=size, mean=data.mean,
        std=data.std, seed=seed, width=WIDTH,
    )  # fmt: skip
    progress = choose_progress()
    began = time.monotonic()
    fit(
        model, preset(scheme, seed=seed), data, optimizer=Optimizer(lr=0.1), schedule=Schedule("one_cycle"),
        epochs=epochs, seed=seed, progress=progress,
    )  # fmt: skip
    report = evaluate(
        model,
        data.test,
        noise_suite(white, salt),
        tags={"scheme": scheme, "train_seed": seed, "data": data.name},
    )
    clean = next(row for row in report.rows if row["level"] == 0)
    progress.note(
        f"{scheme}, seed {seed}: {100 * clean['accuracy']:.1f}% clean, {time.monotonic() - began:.0f} s"
    )
    return report.rows
