"""What a recipe can say. One name for one thing: constructor, TOML key, flag and column."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from nfm.data import DATA
from nfm.errors import UsageError
from nfm.method.schemes import parse
from nfm.models import MODELS
from nfm.models.third_party import SOURCES
from nfm.train.optim import Optimizer
from nfm.train.schedule import Schedule
from nfm.train.settings import Settings

AugmentName = Literal["none", "crop_flip", "autoaugment", "random_resized_crop"]
Normalisation = Literal["data", "authors", "none"]


@dataclass(frozen=True)
class DataConfig:
    """Which data, how much of it, and how it is augmented.

    `validation` is the share of the training part held out; left out, it is the source's own, or a tenth.
    """

    name: str = "digits"
    root: str = ""
    validation: float | None = None
    subset: int = 0
    label_noise: float = 0.0
    imbalance: float = 1.0
    seed: int = 0
    download: bool = False
    augment: AugmentName = "none"

    def __post_init__(self) -> None:
        DATA[self.name.partition(":")[0]]


@dataclass(frozen=True)
class ModelConfig:
    """Which network, with which options of its own, from where, and what of it is frozen.

    `normalisation`: the data's own mean and deviation, the authors' old ones, or none.
    """

    name: str = "small_conv"
    options: dict[str, Any] = field(default_factory=dict)
    normalisation: Normalisation = "data"
    init_from: str = ""
    freeze: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        prefix, colon, _ = self.name.partition(":")
        (SOURCES if colon else MODELS)[prefix]


@dataclass(frozen=True)
class MethodConfig:
    """Which scheme, or composition of schemes; every setting left out is the scheme's own.

    `options` are settings by name, or tables of them by the name of a part. The scheme acts from epoch `start` to
    before epoch `end` (0: the last), and its levels rise over `ramp` epochs.
    """

    scheme: str = "nfm"
    sites: tuple[str, ...] | None = None
    alpha: float | None = None
    beta: float | None = None
    weights: str | None = None
    dominant: bool | None = None
    noise: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    start: float = 0.0
    end: float = 0.0
    ramp: float = 0.0

    def __post_init__(self) -> None:
        parse(self.scheme)
        for name in ("start", "end", "ramp"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise UsageError(f"{name}: expected epochs, 0 or more, got {getattr(self, name)!r}")
        if 0 < self.end <= self.start:
            raise UsageError(f"end: expected an epoch after the start ({self.start:g}), got {self.end:g}")


@dataclass(frozen=True)
class Facts:
    """What a network must know of its data: the shape of an example, the classes, the normalisation."""

    shape: tuple[int, ...]
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]


@dataclass(frozen=True)
class Config:
    """One run."""

    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    method: MethodConfig = field(default_factory=MethodConfig)
    optimizer: Optimizer = field(default_factory=Optimizer)
    schedule: Schedule = field(default_factory=Schedule)
    train: Settings = field(default_factory=Settings)
