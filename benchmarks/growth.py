"""How costs grow: with the number of examples, with the size of a feature, with the epoch a run goes on from."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

from benchmarks.networks import Work, random_data
from benchmarks.side_by_side import Ratio, compare
from nfm.data.examples import DataSet
from nfm.evaluate import WhiteNoise, cells, evaluate
from nfm.method.presets import preset
from nfm.train.fit import fit
from nfm.train.optim import Optimizer
from nfm.train.progress import Silent

FEW, MANY, ROUNDS, SHORT_ROUNDS = 1_000, 50_000, 3, 9
LATE = 40  # epochs


def _network() -> nn.Module:
    """Return a network so small that what surrounds it shows."""
    return nn.Sequential(nn.AvgPool2d(4), nn.Flatten(), nn.Linear(192, 10))


def _training(data: DataSet) -> Work:
    return lambda: fit(_network(), preset("noisy_mixup"), data, epochs=1, batch_size=100, progress=Silent())


def _evaluation(data: DataSet) -> Work:
    model = _network().eval()
    return lambda: evaluate(model, data.test, cells(WhiteNoise(), (0.0, 0.1)))


def _operation(channels: int) -> Work:
    """Return NFM at a feature of 64 x `channels` x 32 x 32, forward and backward."""
    method, identity = preset("nfm", sites=("input",)), nn.Flatten()
    x, y = torch.rand(64, channels, 32, 32, requires_grad=True), torch.arange(64) % 10
    g = torch.rand(64, channels * 32 * 32)

    def run() -> None:
        output = method(identity, x, y, criterion=lambda output, _: output[0, 0]).output
        torch.autograd.grad(output, x, g)

    return run


def _resuming(data: DataSet, folder: Path, epochs: int) -> Work:
    """Return going on with a run that has made `epochs`, for no more."""
    settings: dict[str, Any] = {
        "optimizer": Optimizer(lr=0.01),
        "epochs": epochs,
        "batch_size": 500,
        "progress": Silent(),
    }
    fit(_network(), preset("noisy_mixup"), data, out=folder, **settings)
    return lambda: fit(_network(), preset("noisy_mixup"), data, out=folder, resume=True, **settings)


def measure() -> Iterator[Ratio]:
    """Yield the ratios: cost of an example among many over one among few, and so on."""
    few, many = random_data(FEW), random_data(MANY)
    for name, make in (("training", _training), ("evaluation", _evaluation)):
        work = f"{name}, an example of {MANY:,} / of {FEW:,}"
        yield compare(work, make(many), make(few), rounds=ROUNDS, weight=MANY / FEW)
    wide, narrow = _operation(256), _operation(64)
    name = "nfm at 256 channels / at 64, an element"
    yield compare(name, wide, narrow, rounds=SHORT_ROUNDS, best_of=3, weight=4)
    with tempfile.TemporaryDirectory() as folder:
        numbers = itertools.count()
        late, early = (_resuming(few, Path(folder) / str(next(numbers)), epochs) for epochs in (LATE, 1))
        yield compare(f"resuming at epoch {LATE} / at epoch 1", late, early, rounds=9)
