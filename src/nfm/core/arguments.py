"""What is random in an operator, in two forms: Python's numbers, and tensors for the compiler's graphs."""

from __future__ import annotations

import functools
import itertools
from array import array
from typing import NamedTuple

import torch
from torch import Tensor

from nfm.core.lasting import lasting
from nfm.core.mixing import Pairing
from nfm.core.onlookers import in_a_mode
from nfm.core.receipts import Receipt, receipt_of

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

    They are made when they are asked for first; whoever hands a choice to a graph asks before. `receipt` counts the
    runs, and `drawn` is the pairing, where it was drawn ahead for a size of the batch.
    """

    def __init__(self, numbers: Numbers, keys: Keys, receipt: Receipt, drawn: Pairing | None = None) -> None:
        self.numbers, self.keys, self.receipt, self.drawn = numbers, keys, receipt, drawn

    @classmethod
    def of(
        cls, numbers: Numbers, *, pairing: int, noise: int, receipt: Receipt, drawn: Pairing | None = None
    ) -> Arguments:
        """Return the arguments of a forward pass, under a new serial number."""
        return cls(numbers, Keys(pairing, noise, next(_SERIALS)), receipt, drawn)

    def __reduce__(self) -> tuple[type[Arguments], tuple[Numbers, Keys, Receipt]]:
        """Leave out of a copy what can be drawn and made again."""
        return Arguments, (self.numbers, self.keys, self.receipt)

    def again(self) -> Arguments:
        """Return the same under another serial number, with a receipt that goes on from this one."""
        receipt = Receipt(runs=self.receipt.runs, shape=self.receipt.shape)
        return Arguments.of(self.numbers, pairing=self.keys.pairing, noise=self.keys.noise, receipt=receipt)

    @classmethod
    def of_tensors(cls, numbers: Tensor, keys: Tensor) -> Arguments:
        """Return the arguments that the tensors of others are made of; their receipt is found by its serial number."""
        read = Keys(*keys.tolist())
        return cls(Numbers(*numbers.tolist()), read, receipt_of(read.serial))

    @functools.cached_property
    @lasting
    def tensors(self) -> tuple[Tensor, Tensor]:
        """Return numbers [5] and keys [3]."""
        self.receipt.open(self.keys.serial)
        if in_a_mode():  # which may want tensors of its own
            return torch.tensor(self.numbers, dtype=torch.float64, device="cpu"), torch.tensor(
                self.keys, device="cpu"
            )
        # From buffers: sooner than from lists, and on the CPU whatever the default device is.
        return (
            torch.frombuffer(array("d", self.numbers), dtype=torch.float64),
            torch.frombuffer(array("q", self.keys), dtype=torch.int64),
        )
