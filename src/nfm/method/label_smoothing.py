"""Label smoothing (Szegedy et al. 2016, Section 7): a criterion, which composes with every scheme."""

from __future__ import annotations

import copy
import functools
from dataclasses import dataclass

import torch.nn.functional as F
from torch import nn

from nfm.core.mixing import Criterion
from nfm.errors import UsageError

_ARGUMENT = "label_smoothing"  # what torch calls it


@dataclass(frozen=True, repr=False)
class LabelSmoothing:
    """Give the share `level` of each label to all classes alike: q = (1 - level) * label + level / classes."""

    level: float = 0.1  # Szegedy et al. 2016, Section 7

    def __post_init__(self) -> None:
        number = isinstance(self.level, int | float) and not isinstance(self.level, bool)
        if not number or not 0 <= self.level < 1:
            raise UsageError(f"label_smoothing: expected a level from 0 to below 1, got {self.level!r}")

    def __repr__(self) -> str:
        return f"label_smoothing(level={self.level:g})"

    def scaled(self, factor: float) -> LabelSmoothing:
        """Return the same with `factor` times the level."""
        return LabelSmoothing(self.level * factor)

    def smooth(self, criterion: Criterion) -> Criterion:
        """Return `criterion`, a cross-entropy, with smoothed labels; class weights and ignored labels count.

        >>> import torch
        >>> smooth = LabelSmoothing(0.5).smooth(F.cross_entropy)
        >>> float(smooth(torch.zeros(1, 4), torch.tensor([2])).exp())
        4.0
        """
        if isinstance(criterion, nn.CrossEntropyLoss):
            _refuse_twice(criterion.label_smoothing)
            smooth = copy.copy(criterion)
            smooth.label_smoothing = self.level
            return smooth
        if getattr(criterion, "func", criterion) is not F.cross_entropy:
            raise UsageError(
                f"label_smoothing: expected a cross-entropy to smooth the labels of, got {criterion!r}; "
                "use F.cross_entropy, functools.partial of it or nn.CrossEntropyLoss"
            )
        _refuse_twice(getattr(criterion, "keywords", {}).get(_ARGUMENT, 0.0))
        return functools.partial(criterion, **{_ARGUMENT: self.level})


def _refuse_twice(level: float) -> None:
    if level:
        raise UsageError(
            f"label_smoothing: the criterion smooths its labels already, by {level:g}; "
            "say it once, in the scheme or in the criterion"
        )
