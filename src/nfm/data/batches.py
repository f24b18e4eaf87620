"""Batches in a keyed order. A position is (epoch, step); nothing else is remembered."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from nfm.data.ahead import ahead
from nfm.data.examples import Augment, ExampleSet, to_unit
from nfm.errors import DataError, UsageError
from nfm.randomness import check_seed, fold, numpy_generator


@dataclass(frozen=True, eq=False)
class Batch:
    """x: float32 (B,C,H,W) in [0,1], or (B,d); y: labels of the B examples; ids: int64 (B,)."""

    x: Tensor
    y: Tensor
    ids: Tensor

    def __len__(self) -> int:
        return len(self.ids)


class Batches:
    """Cut examples into batches, the same ones for the same (seed, epoch, step), on any number of ranks.

    batch_size counts all ranks together: rank r of w takes the slice [b*r//w, b*(r+1)//w) of each batch of b,
    so every rank makes the same number of steps and each example is seen exactly once an epoch.
    With shuffle (training), a last batch that would leave a rank fewer than 2 examples (batch norm needs 2)
    is merged into the one before it, with one warning. Without (evaluation), a rank's slice of the last
    batch may be empty.
    workers: threads that prepare batches ahead; they never change what is delivered.
    """

    def __init__(
        self,
        examples: ExampleSet,
        *,
        batch_size: int,
        seed: int = 0,
        augment: Augment | None = None,
        shuffle: bool = True,
        drop_last: bool = False,
        rank: int = 0,
        world: int = 1,
        workers: int = 0,
    ) -> None:
        self.examples = examples
        self.batch_size = batch_size
        self.seed = check_seed(seed)
        self.augment = augment
        self.shuffle = shuffle
        self.rank, self.world = rank, world
        self.workers = workers
        self._check()
        self._bounds = self._cut(drop_last)

    @property
    def steps_per_epoch(self) -> int:
        return len(self._bounds) - 1

    def size(self, step: int) -> int:
        """Return how many examples all ranks together see in `step`."""
        return self._bounds[step + 1] - self._bounds[step]

    def epoch(self, epoch: int, start_step: int = 0) -> Iterator[Batch]:
        """Yield this rank's batches of `epoch` from `start_step` on; no earlier batch is prepared."""
        if not 0 <= start_step <= self.steps_per_epoch:
            raise UsageError(f"start_step: expected 0 to {self.steps_per_epoch}, got {start_step}")
        order = self._order(epoch)
        key = fold(self.seed, "augment", epoch)
        return ahead(
            lambda step: self._batch(order, step, key), range(start_step, self.steps_per_epoch), self.workers
        )

    def _order(self, epoch: int) -> Tensor:
        if not self.shuffle:
            return torch.arange(len(self.examples))
        generator = numpy_generator(fold(self.seed, "order", epoch))
        return torch.from_numpy(generator.permutation(len(self.examples)))

    def _batch(self, order: Tensor, step: int, key: int) -> Batch:
        start, size = self._bounds[step], self.size(step)
        first, last = size * self.rank // self.world, size * (self.rank + 1) // self.world
        indices = order[start + first : start + last]
        images = self.examples.fetch(indices, augment=self.augment, key=key)
        return Batch(to_unit(images), self.examples.labels[indices], self.examples.ids[indices])

    def _check(self) -> None:
        for name, value, least in (
            ("batch_size", self.batch_size, self.world if self.shuffle else 1),
            ("world", self.world, 1),
            ("workers", self.workers, 0),
        ):
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise UsageError(f"{name}: expected a whole number of at least {least}, got {value!r}")
        if not 0 <= self.rank < self.world:
            raise UsageError(f"rank: expected 0 to {self.world - 1}, got {self.rank!r}")
        if len(self.examples) < (self.world if self.shuffle else 1):
            raise DataError(f"expected at least one example a rank ({self.world}), got {len(self.examples)}")

    def _cut(self, drop_last: bool) -> list[int]:
        """Return where each global batch starts, and the end of the last."""
        total = len(self.examples)
        if drop_last and self.batch_size > total:
            raise UsageError(
                f"batch_size {self.batch_size} with drop_last makes 0 steps of {total} examples; "
                f"use a batch_size of at most {total}, or drop_last=False"
            )
        bounds = list(range(0, total + 1 if drop_last else total, self.batch_size))
        if drop_last:
            return bounds
        each = 2 if self.batch_size >= 2 * self.world else 1  # asked for fewer, a rank gets at least one
        if self.shuffle and total - bounds[-1] < each * self.world:
            self._merge_last(bounds, total - bounds[-1], each)
        return [*bounds, total]

    def _merge_last(self, bounds: list[int], left: int, each: int) -> None:
        if len(bounds) > 1:
            bounds.pop()
            told = "it is merged into the batch before it"
        else:
            told = "batch norm cannot train on a single example"
        warnings.warn(
            f"the last batch has {left} example(s) for {self.world} rank(s), fewer than {each} each: {told}",
            stacklevel=4,
        )
