"""What the training loop costs: an epoch of `nfm.fit`, all features on, over a bare loop on the same batches.

The end of an epoch (accuracy on a probe, a checkpoint) takes as long whatever its length: 100 steps are a short epoch.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch.nn.functional as F

from benchmarks.networks import BATCH, Work, preact_resnet18, random_data, sgd
from benchmarks.side_by_side import Ratio, compare
from nfm.data.batches import Batches
from nfm.data.examples import DataSet
from nfm.method.presets import preset
from nfm.train.fit import fit
from nfm.train.optim import Optimizer
from nfm.train.progress import Lines
from nfm.train.schedule import Schedule

STEPS, ROUNDS, WIDTH = 100, 3, 1 / 8


def _bare(data: DataSet) -> Work:
    """Return an epoch of a loop as short as PyTorch allows."""

    def run() -> None:
        model = preact_resnet18(WIDTH)
        optimizer = sgd(model)
        for batch in Batches(data.train, batch_size=BATCH).epoch(0):
            optimizer.zero_grad()
            F.cross_entropy(model(batch.x), batch.y).backward()
            optimizer.step()

    return run


def _fit(data: DataSet, folder: Path) -> Work:
    """Return an epoch of ours: rows, progress, the check for finite numbers, checkpoints at their interval."""
    return lambda: fit(
        preact_resnet18(WIDTH), preset("erm"), data, optimizer=Optimizer(lr=0.01), schedule=Schedule("constant"),
        epochs=1, batch_size=BATCH, progress=Lines(), out=folder, overwrite=True,
    )  # fmt: skip


def measure() -> Iterator[Ratio]:
    """Yield the ratio."""
    data = random_data(BATCH * STEPS)
    with tempfile.TemporaryDirectory() as folder:
        ours = _fit(data, Path(folder) / "run")
        yield compare(f"nfm.fit / bare loop, {STEPS} steps of width 1/8", ours, _bare(data), rounds=ROUNDS)
