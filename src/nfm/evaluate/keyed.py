"""Random numbers keyed by example: an id gets the same numbers in any batch, order or thread.

The numbers are a hash of (key of the example, position), so a batch is drawn at once and without state.
Only integer arithmetic and correctly rounded float operations are used (no sin, no log), so that
the bits do not depend on where in a tensor a value stands.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from statistics import NormalDist

import torch
from torch import Tensor

from nfm.randomness import fold

# Steele, Lea & Flood 2014, "Fast splittable pseudorandom number generators": the increment and
# the finaliser of SplitMix64 (variant 13 of Stafford), as signed 64-bit integers.
INCREMENT = 0x9E3779B97F4A7C15 - 2**64
ROUNDS = ((30, 0xBF58476D1CE4E5B9 - 2**64), (27, 0x94D049BB133111EB - 2**64), (31, None))

WHOLE_BITS = 23  # of a uniform number: as many as the mantissa of a float has
STEP_BITS = 6  # 64 lines an octave: the interpolated quantile is then exact to 2e-5
OCTAVES = 31


@dataclass(frozen=True)
class Stream:
    """The random numbers of a batch; row i depends on the key of example i alone."""

    keys: Tensor  # int64 (B,)

    @classmethod
    def of(cls, ids: Tensor, *parts: int | str) -> Stream:
        """Return the stream of the examples `ids` (int64, (B,)) for a purpose told by `parts`."""
        return cls(_mix(ids * INCREMENT + fold(*parts)))

    def __getitem__(self, chosen: Tensor) -> Stream:
        """Return the stream of some of the examples, by mask or indices."""
        return Stream(self.keys[chosen])

    def uniform(self, shape: Sequence[int], *, purpose: int = 0) -> Tensor:
        """Return float32 numbers of shape (B, *shape), uniform on [0, 1) in steps of 2**-WHOLE_BITS."""
        mantissa = self.whole(shape, purpose=purpose)
        return mantissa.bitwise_or_(0x3F800000).view(torch.float32).sub_(1)  # 1.mantissa - 1

    def whole(self, shape: Sequence[int], *, purpose: int = 0) -> Tensor:
        """Return int32 numbers of shape (B, *shape), uniform from 0 to 2**WHOLE_BITS - 1."""
        return self._bits(prod(shape), purpose).bitwise_and_(2**WHOLE_BITS - 1).view(-1, *shape)

    def normal(self, shape: Sequence[int], *, purpose: int = 0) -> Tensor:
        """Return float32 standard normal numbers of shape (B, *shape), up to 6.2 in size."""
        bits = self._bits(prod(shape), purpose)
        magnitude = (bits & 0x7FFFFFFF).bitwise_or_(1).to(torch.float32)  # 1 to 2**31, odd before rounding
        # Exponent and leading mantissa bits of a float count the steps of all octaves one after another.
        place = (
            magnitude.view(torch.int32).bitwise_right_shift(23 - STEP_BITS).sub_(127 << STEP_BITS).view(-1)
        )
        start, slope = (table.to(bits.device) for table in _quantiles())
        drawn = magnitude.view(-1).mul_(slope.index_select(0, place)).add_(start.index_select(0, place))
        drawn.view(torch.int32).bitwise_xor_(bits.bitwise_and_(-(2**31)).view(-1))  # the top bit is the sign
        return drawn.view(-1, *shape)

    def _bits(self, count: int, purpose: int) -> Tensor:
        """Return 32 random bits a value, int32 (B, count)."""
        keys = _mix(self.keys ^ purpose) if purpose else self.keys
        steps = torch.arange(1, (count + 1) // 2 + 1, device=keys.device) * INCREMENT
        return _mix(keys[:, None] + steps).view(torch.int32)[:, :count].contiguous()


def _mix(z: Tensor) -> Tensor:
    """Scramble the fresh int64 tensor `z` in place: a bijection of 64 bits."""
    shifted = torch.empty_like(z)
    for shift, factor in ROUNDS:
        torch.bitwise_right_shift(z, shift, out=shifted)
        z ^= shifted.bitwise_and_((1 << (64 - shift)) - 1)  # the mask makes the shift a logical one
        if factor is not None:
            z *= factor
    return z


@functools.cache
def _quantiles() -> tuple[Tensor, Tensor]:
    """Return start and slope of the lines that interpolate -Phi^-1(m / 2**32) for m from 1 to 2**31."""
    octaves = (divmod(place, 2**STEP_BITS) for place in range(OCTAVES * 2**STEP_BITS + 1))
    knots = [2.0**octave * (1 + step / 2**STEP_BITS) for octave, step in octaves]
    values = [-NormalDist().inv_cdf(knot / 2**32) for knot in knots]
    m, z = torch.tensor(knots, dtype=torch.float64), torch.tensor(values, dtype=torch.float64)
    slope = torch.diff(z) / torch.diff(m)
    slope = torch.cat([slope, slope[-1:]])
    return (z - slope * m).float(), slope.float()
