"""The factors 1 + noise of a feature, as a backward pass finds them."""

from __future__ import annotations

from typing import NamedTuple

from nfm.core.blocks import Index, Values, narrowed


class Factors(NamedTuple):
    """The factors of the first examples, and those of the others, where they lie elsewhere.

    They broadcast against the feature, unless there are others.
    """

    first: Values
    others: Values | None = None

    def at(self, index: Index) -> Values:
        """Return the factors of a part of the feature: of examples that lie together, if they do not all."""
        if self.others is None:
            return self.first[narrowed(index, self.first)]
        rows, *inner = index
        before = len(self.first)
        if (rows.start if isinstance(rows, slice) else rows) < before:
            return self.first[index]
        moved = slice(rows.start - before, rows.stop - before) if isinstance(rows, slice) else rows - before
        return self.others[moved, *inner]
