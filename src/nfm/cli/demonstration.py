"""What ``nfm demo`` does, in the words of the library."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch

from nfm.cli.candidates import Request, find_candidate
from nfm.cli.evaluating import Options, measure
from nfm.config.build import build_run
from nfm.config.runs import to_recipe
from nfm.config.schema import Config, DataConfig, MethodConfig, ModelConfig
from nfm.evaluate.suites import Suite, noise_suite
from nfm.plots.canvas import save_figure
from nfm.plots.curves import curves
from nfm.plots.table import table
from nfm.results import Row, provenance, to_line, write_atomically
from nfm.train.fit import fit
from nfm.train.optim import Optimizer
from nfm.train.progress import choose_progress
from nfm.train.schedule import Schedule
from nfm.train.settings import Settings

WIDTH = 0.5  # of the small network: 24,000 parameters


def demonstrate(
    out: Path, *, schemes: Sequence[str], seeds: Iterable[int], epochs: int,
    white: Sequence[float], salt: Sequence[float],
) -> list[Row]:  # fmt: skip
    """Train each scheme with each seed on digits, measure it under noise; write runs, rows, table, picture."""
    seeds = list(seeds)
    print(f"digits: {len(schemes)} schemes x {len(seeds)} seeds x {epochs} epochs")
    rows: list[Row] = []
    with _one_thread():
        for seed in seeds:
            for scheme in schemes:
                folder = out / f"{scheme}-{seed}"
                rows += _one(_config(scheme, seed, epochs), folder, noise_suite(white, salt))
    made_by = provenance()
    write_atomically(
        out / "rows.jsonl", "".join(to_line(row | {"made_by": made_by}) for row in rows).encode()
    )
    text = table(rows)
    write_atomically(out / "table.txt", text.encode())
    picture = save_figure(curves(rows, title="Digits under noise"), out / "curves.png")
    print(f"\n{text}\n\nruns:    {out}/SCHEME-SEED\nrows:    {out / 'rows.jsonl'}\npicture: {picture}")
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


def _config(scheme: str, seed: int, epochs: int) -> Config:
    return Config(
        data=DataConfig("digits", validation=0.0),
        model=ModelConfig("small_conv", options={"width": WIDTH}),
        method=MethodConfig(scheme),
        optimizer=Optimizer(lr=0.1),
        schedule=Schedule("one_cycle"),
        train=Settings(epochs=epochs, seed=seed),
    )


def _one(config: Config, folder: Path, suite: Suite) -> list[Row]:
    """Train by `config` into `folder` and measure what came out; what the folder held is replaced."""
    progress = choose_progress()
    began = time.monotonic()
    parts = build_run(config)
    fit(
        parts.model, parts.method, parts.data, optimizer=config.optimizer, schedule=config.schedule,
        settings=config.train, progress=progress, out=folder, overwrite=True,
        recipe=to_recipe(config, parts.data),
    )  # fmt: skip
    options = Options(suite=None, more=suite, overwrite=True)
    report, _, _ = measure(find_candidate(Request(str(folder))), options)
    scheme, seed, seconds = config.method.scheme, config.train.seed, time.monotonic() - began
    accuracy = 100 * report.row("clean", 0.0)["accuracy"]
    progress.note(f"{scheme}, seed {seed}: {accuracy:.1f}% clean, {seconds:.0f} s")
    return report.rows
