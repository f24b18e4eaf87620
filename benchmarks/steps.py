"""What a method costs: one training step over one of plain training, and our loop over a bare one."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.side_by_side import Ratio, compare
from nfm.data.batches import Batches
from nfm.data.examples import DataSet, Examples
from nfm.method.presets import preset
from nfm.models import build
from nfm.train.fit import fit
from nfm.train.optim import Optimizer
from nfm.train.progress import Silent
from nfm.train.schedule import Schedule

BATCH, STEPS = 128, 4


def _images(count: int) -> DataSet:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (count, 3, 32, 32), generator=generator, dtype=torch.uint8)
    labels = torch.randint(0, 10, (count,), generator=generator)
    examples = Examples(images, labels, torch.arange(count))
    empty = examples.subset(torch.arange(0))
    classes = tuple(map(str, range(10)))
    return DataSet("random pixels", examples, empty, examples, classes, (0.5,) * 3, (0.25,) * 3)


def _network() -> nn.Module:
    return build("preact_resnet18", num_classes=10, mean=(0.5,) * 3, std=(0.25,) * 3, width=0.25)


def _steps(scheme: str, x: Tensor, y: Tensor) -> Callable[[], object]:
    model, method = _network(), preset(scheme)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)

    def run() -> None:
        for _ in range(STEPS):
            optimizer.zero_grad()
            method(model, x, y).loss.backward()
            optimizer.step()

    return run


def _bare(data: DataSet) -> Callable[[], object]:
    """Return one epoch of a loop as short as PyTorch allows, on the same batches."""

    def run() -> None:
        model = _network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
        for batch in Batches(data.train, batch_size=BATCH).epoch(0):
            optimizer.zero_grad()
            F.cross_entropy(model(batch.x), batch.y).backward()
            optimizer.step()

    return run


def _fit(data: DataSet) -> Callable[[], object]:
    return lambda: fit(
        _network(), preset("erm"), data, optimizer=Optimizer(), schedule=Schedule("constant"), epochs=1,
        batch_size=BATCH, progress=Silent(),
    )  # fmt: skip


def measure() -> Iterator[Ratio]:
    """Yield the ratios."""
    generator = torch.Generator().manual_seed(0)
    x, y = (
        torch.rand(BATCH, 3, 32, 32, generator=generator),
        torch.randint(0, 10, (BATCH,), generator=generator),
    )
    plain = _steps("erm", x, y)
    for scheme in ("manifold_mixup", "nfm"):
        name = f"{scheme} step / erm step (PreActResNet-18, width 1/4, batch 128)"
        yield compare(name, _steps(scheme, x, y), plain, rounds=9)
    data = _images(BATCH * 20)
    yield compare("nfm.fit epoch / bare loop epoch (erm)", _fit(data), _bare(data), rounds=5)
