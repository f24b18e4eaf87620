"""What the training loop costs: an epoch of `nfm.fit`, all features on, over a bare loop on the same batches.

Both take their steps by turns, because a machine's speed drifts by more than is to be seen here: after each step of
ours, when progress is told, the bare loop takes one of its own. Everything else that `fit` does counts as ours: its
start, the rows, the checkpoints, and the end of the epoch with its accuracy on a probe. What is done before the first
step and after the last one (a checkpoint too, sooner than the default interval asks for one) is spread over all parts
of the run, so that the median of their ratios has its share. A part in which other machines took much of the
processors' time does not count, as long as half of the parts do.
"""

from __future__ import annotations

import itertools
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import torch.nn.functional as F

from benchmarks.neighbours import Clock, disturbed_since
from benchmarks.networks import BATCH, preact_resnet18, random_data, sgd
from benchmarks.side_by_side import Ratio
from nfm.data.batches import Batches
from nfm.data.examples import DataSet
from nfm.method.presets import preset
from nfm.train.fit import fit
from nfm.train.optim import Optimizer
from nfm.train.progress import Countable, Lines, Moment
from nfm.train.schedule import Schedule

STEPS, PARTS, WIDTH = 200, 20, 1 / 8  # half an epoch of CIFAR-10


class ByTurns(Lines):
    """Progress as lines, after each of which the bare loop takes a step; both are timed."""

    def __init__(self, bare: Iterator[None]) -> None:
        super().__init__()
        self.bare = bare
        self.ours, self.reference = [0.0], [0.0]  # seconds, before the first step and after each
        self.disturbed = [False] * PARTS
        self.began, self.clock = time.perf_counter(), Clock.read()

    def start(self, title: str, moment: Countable) -> None:
        super().start(title, moment)
        self.ours[0], self.clock = time.perf_counter() - self.began, Clock.read()

    def step(self, moment: Moment) -> None:
        super().step(moment)
        before = time.perf_counter()
        self.ours.append(before - self.began - self.reference[-1])
        next(self.bare)
        self.reference.append(self.reference[-1] + time.perf_counter() - before)
        part, left = divmod(moment.step, STEPS // PARTS)
        if not left:
            self.disturbed[part - 1], self.clock = disturbed_since(self.clock), Clock.read()


def _bare(data: DataSet) -> Iterator[None]:
    """Return the steps of a loop as short as PyTorch allows, ready to be taken."""
    model = preact_resnet18(WIDTH)
    optimizer = sgd(model)  # the first of a process imports much of torch

    def steps() -> Iterator[None]:
        for batch in Batches(data.train, batch_size=BATCH).epoch(0):
            optimizer.zero_grad()
            F.cross_entropy(model(batch.x), batch.y).backward()
            optimizer.step()
            yield

    return steps()


def measure() -> Iterator[Ratio]:
    """Yield the ratio, part by part: all that is ours over the steps of the bare loop."""
    data = random_data(BATCH * STEPS)
    turns = ByTurns(_bare(data))
    with tempfile.TemporaryDirectory() as folder:
        fit(
            preact_resnet18(WIDTH), preset("erm"), data, optimizer=Optimizer(lr=0.01), schedule=Schedule("constant"),
            epochs=1, batch_size=BATCH, progress=turns, out=Path(folder) / "run",
        )  # fmt: skip
    once = time.perf_counter() - turns.began - turns.reference[-1] - (turns.ours[-1] - turns.ours[0])
    pairs = [
        (mine + once / PARTS, theirs)
        for mine, theirs in zip(_parts(turns.ours), _parts(turns.reference), strict=True)
    ]
    calm = [pair for pair, disturbed in zip(pairs, turns.disturbed, strict=True) if not disturbed]
    counted = calm if len(calm) >= PARTS / 2 else pairs
    name = f"nfm.fit / bare loop, {STEPS} steps of width 1/8 in {PARTS} parts"
    yield Ratio.of(name, counted, left_out=PARTS - len(counted))


def _parts(elapsed: list[float]) -> list[float]:
    """Return how long each part took."""
    return [end - start for start, end in itertools.pairwise(elapsed[:: STEPS // PARTS])]
