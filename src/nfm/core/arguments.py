"""What is random in an operator, in two forms: Python's numbers, and tensors for the compiler's graphs."""

from __future__ import annotations

import functools
import itertools
from array import array
from typing import NamedTuple

import torch
from torch import Tensor

from nfm.core.lasting import lasting
from nfm.core.onlookers import in_a_mode

_SERIALS = itertools.count()


class Numbers(NamedTuple):
    """The weight of the batch, the law of the weights, and the levels of both noises."""

    weight: float
    alpha: float
    beta: float
    add: float
    mult: float


class Keys(NamedTuple):
    """The keys of the partners and of the noise, and a serial number that no other forward pass has."""

    pairing: int
    noise: int
    serial: int


class Arguments:
    """Numbers and keys of one forward pass; `tensors` are the same, because a graph would keep Python's for good.

    They are made when they are asked for first; whoever hands a choice to a graph asks before.
    """

    def __init__(self, numbers: Numbers, keys: Keys) -> None:
        self.numbers, self.keys = numbers, keys

    @classmethod
    def of(cls, numbers: Numbers, *, pairing: int, noise: int) -> Arguments:
        """Return the arguments of a forward pass, under a new serial number."""
        return cls(numbers, Keys(pairing, noise, next(_SERIALS)))

    def again(self) -> Arguments:
        """Return the same under another serial number."""
        return Arguments.of(self.numbers, pairing=self.keys.pairing, noise=self.keys.noise)

    @functools.cached_property
    @lasting
    def tensors(self) -> tuple[Tensor, Tensor]:
        """Return numbers [5] and keys [3]."""
        if in_a_mode():  # which may want tensors of its own
            return torch.tensor(self.numbers, dtype=torch.float64, device="cpu"), torch.tensor(
                self.keys, device="cpu"
            )
        # From buffers: sooner than from lists, and on the CPU whatever the default device is.
        return (
            torch.frombuffer(array("d", self.numbers), dtype=torch.float64),
            torch.frombuffer(array("q", self.keys), dtype=torch.int64),
        )
