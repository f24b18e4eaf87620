"""What a data set is: examples with labels and stable ids, in three parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor


class Augment(Protocol):
    """A random change of images whose draw depends on `key` and each example's id alone."""

    def __call__(self, images: Tensor, ids: Tensor, *, key: int) -> Tensor: ...


class ExampleSet(Protocol):
    """What batching needs: tensors in memory and files decoded on demand look the same."""

    @property
    def labels(self) -> Tensor: ...

    @property
    def ids(self) -> Tensor: ...

    @property
    def shape(self) -> tuple[int, ...]: ...

    def __len__(self) -> int: ...

    def subset(self, indices: Tensor) -> ExampleSet: ...

    def relabel(self, labels: Tensor) -> ExampleSet: ...

    def fetch(self, indices: Tensor, *, augment: Augment | None = None, key: int = 0) -> Tensor: ...


@dataclass(frozen=True, eq=False)
class Examples:
    """Examples in memory.

    images: uint8 (n,C,H,W), or float32 (n,d) for vectors; labels: int64 (n,) or probabilities (n,classes);
    ids: int64 (n,), the place of each example in its source, whatever was split or left out since.
    """

    images: Tensor
    labels: Tensor
    ids: Tensor

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one example."""
        return tuple(self.images.shape[1:])

    def __len__(self) -> int:
        return len(self.images)

    def subset(self, indices: Tensor) -> Examples:
        """Return the examples at `indices`, in that order."""
        return Examples(self.images[indices], self.labels[indices], self.ids[indices])

    def relabel(self, labels: Tensor) -> Examples:
        """Return the same examples with other labels."""
        return replace(self, labels=labels)

    def fetch(self, indices: Tensor, *, augment: Augment | None = None, key: int = 0) -> Tensor:
        """Return a copy of the images at `indices`, augmented by their own keyed draws."""
        images = self.images.index_select(0, indices)  # eight times faster than images[indices]
        return images if augment is None else augment(images, self.ids[indices], key=key)


@dataclass(frozen=True, eq=False)
class DataSet:
    """Three parts that share no example, and what is known of them.

    mean, std: per channel, in units where a pixel is in [0,1]; source: files with their checksums, or the
    generator's arguments.
    """

    name: str
    train: ExampleSet
    validation: ExampleSet
    test: ExampleSet
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    source: Mapping[str, Any] = field(default_factory=dict)

    @property
    def num_classes(self) -> int:
        return len(self.classes)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one example: (C,H,W), or (d,) for vectors."""
        return self.train.shape


def in_memory(images: np.ndarray[Any, Any], labels: np.ndarray[Any, Any], first_id: int = 0) -> Examples:
    """Return arrays as Examples: images (n,C,H,W) uint8 or (n,d) float, labels (n,) or (n,classes)."""
    pixels = torch.from_numpy(np.require(images, requirements=["C", "W"]))
    targets = torch.from_numpy(np.require(labels, requirements=["C", "W"]))
    return Examples(
        images=pixels if pixels.dtype == torch.uint8 else pixels.float(),
        labels=targets.float() if targets.ndim == 2 else targets.long(),
        ids=torch.arange(first_id, first_id + len(pixels)),
    )


def empty_like(examples: ExampleSet) -> ExampleSet:
    """Return no example of the same kind."""
    return examples.subset(torch.empty(0, dtype=torch.int64))


def to_unit(images: Tensor) -> Tensor:
    """Return uint8 pixels as float32 in [0,1]; floats pass as they are.

    >>> to_unit(torch.tensor([0, 255], dtype=torch.uint8))
    tensor([0., 1.])
    """
    return images.float().div_(255) if images.dtype == torch.uint8 else images.float()


def channel_statistics(images: Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the mean and standard deviation of each channel of uint8 or float (n,C,H,W), in [0,1] units."""
    channels = images.shape[1]
    if images.dtype != torch.uint8:
        values = images.double().transpose(0, 1).reshape(channels, -1)
        return tuple(values.mean(1).tolist()), tuple(values.std(1, correction=0).tolist())
    counts = torch.stack([images[:, c].flatten().bincount(minlength=256) for c in range(channels)]).double()
    share = counts / counts.sum(1, keepdim=True)
    level = torch.arange(256, dtype=torch.float64) / 255
    mean = share @ level
    return tuple(mean.tolist()), tuple(((share @ level**2) - mean**2).clamp(min=0).sqrt().tolist())
