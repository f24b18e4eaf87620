"""Both noises of one feature, keyed and not drawn yet: what every way of drawing them starts from."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

from numpy.typing import NDArray
from torch import Tensor

from nfm.randomness import fold

Values = TypeVar("Values", Tensor, NDArray[Any])
ELEMENT = "element"  # the granularity at which each element has a value of its own


class Source(NamedTuple):
    """Where the values of one noise come from, and the level they are multiplied by."""

    law: str
    key: int
    level: float = 1.0


@dataclass(frozen=True)
class NoisePlan:
    """The additive and the multiplicative noise of a feature, None at level 0, and who is left untouched.

    `scale` is a further factor of the additive noise: the feature's deviation, where the level is relative.
    """

    add: Source | None
    mult: Source | None
    touch: Source | None
    sparsity: float
    granularity: str
    scale: float = 1.0

    @classmethod
    def of(
        cls, key: int, levels: tuple[float, float], *, add_law: str, mult_law: str, granularity: str, sparsity: float
    ) -> NoisePlan:  # fmt: skip
        """Return the plan of `key` with the levels (additive, multiplicative) of this batch."""
        add, mult = levels
        if not (add or mult):
            return silent_plan(granularity)
        sparse = sparsity > 0
        return cls(
            add=Source(add_law, fold(key, "add"), add) if add else None,
            mult=Source(mult_law, fold(key, "mult"), mult) if mult else None,
            touch=Source("uniform", fold(key, "sparsity")) if sparse else None,
            sparsity=sparsity, granularity=granularity,
        )  # fmt: skip

    def linear_part(self) -> NoisePlan:
        """Return the plan without the additive noise; who is left untouched stays."""
        return replace(self, add=None, touch=self.touch if self.mult else None, scale=1.0)

    @property
    def silent(self) -> bool:
        """Tell whether there is no noise at all."""
        return self.add is None and self.mult is None

    @property
    def sources(self) -> list[Source]:
        """What is to be drawn."""
        return [source for source in (self.touch, self.add, self.mult) if source is not None]

    def fine(self, shape: tuple[int, ...]) -> bool:
        """Tell whether each element of a feature of `shape` has a value of its own."""
        return self.granularity == ELEMENT or self.shape(shape) == shape

    def shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of the values that a feature of `shape` needs; it broadcasts against it."""
        kept = {ELEMENT: len(shape), "channel": 2, "sample": 1}[self.granularity]
        return tuple(size if axis < kept else 1 for axis, size in enumerate(shape))

    def role(self, source: Source) -> str:
        """Return the name of the noise that comes from `source`."""
        return {self.add: "add", self.mult: "mult", self.touch: "touch"}[source]

    def draw(self, values_of: Callable[[Source], Values]) -> tuple[Values | None, Values | None]:
        """Return the additive and the multiplicative noise; `values_of` draws the values of a source."""
        touched = None if self.touch is None else values_of(self.touch) + 1 >= 2 * self.sparsity
        add, mult = (None if source is None else values_of(source) for source in (self.add, self.mult))
        for noise in (add, mult):
            if noise is not None and touched is not None:
                noise *= touched
        if add is not None and self.scale != 1:
            add *= self.scale
        return add, mult


@functools.cache
def silent_plan(granularity: str) -> NoisePlan:
    """Return the plan without any noise."""
    return NoisePlan(add=None, mult=None, touch=None, sparsity=0.0, granularity=granularity)
