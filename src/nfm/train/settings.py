"""How to train: everything that is not the network, the data, the method or the optimizer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from nfm.errors import UsageError, did_you_mean
from nfm.randomness import check_seed

Precision = Literal["float32", "bfloat16", "float16"]


@dataclass(frozen=True)
class Settings:
    """The numbers of the training loop.

    `batch_size` counts all ranks and is cut into `accumulate` parts, each mixed within itself. `clip` is the
    largest gradient norm (0: none). `ema` is the decay of an exponential average of the weights (0: none).
    `precision` other than float32 means autocast. A checkpoint is written every `checkpoint_seconds` of
    work, at the end and on a signal; `log_every` counts steps.
    """

    epochs: int = 30
    batch_size: int = 128
    seed: int = 0
    accumulate: int = 1
    clip: float = 0.0
    label_smoothing: float = 0.0
    ema: float = 0.0
    precision: Precision = "float32"
    compile: bool = False
    channels_last: bool = False
    deterministic: bool = False
    sync_batch_norm: bool = False
    workers: int = 0
    log_every: int = 50
    checkpoint_seconds: float = 60.0

    def __post_init__(self) -> None:
        check_seed(self.seed)
        for name, least in (
            ("epochs", 0),
            ("batch_size", 1),
            ("accumulate", 1),
            ("workers", 0),
            ("log_every", 1),
        ):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise UsageError(f"{name}: expected a whole number of at least {least}, got {value!r}")
        for name, high in (("clip", float("inf")), ("checkpoint_seconds", float("inf"))):
            if not 0 <= getattr(self, name) < high:
                raise UsageError(
                    f"{name}: expected a finite number, 0 or greater, got {getattr(self, name)!r}"
                )
        for name in ("label_smoothing", "ema"):
            if not 0 <= getattr(self, name) < 1:
                raise UsageError(f"{name}: expected a number from 0 to below 1, got {getattr(self, name)!r}")
        if self.precision not in get_args(Precision):
            raise UsageError(
                f"precision: expected one of {', '.join(get_args(Precision))}, got {self.precision!r}"
                f"{did_you_mean(str(self.precision), get_args(Precision))}"
            )
        if self.accumulate > self.batch_size:
            raise UsageError(
                f"accumulate: expected at most batch_size ({self.batch_size}), got {self.accumulate}"
            )
