"""Square attack: random squares, kept when they help; needs no gradient (Andriushchenko et al. 2020).

"Square attack: a query-efficient black-box adversarial attack via random search", ECCV 2020; linf.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from nfm.errors import UsageError
from nfm.evaluate.attack import Attack
from nfm.evaluate.batchwise import choose, rectangle
from nfm.evaluate.checks import Classifier, predict
from nfm.evaluate.keyed import Stream
from nfm.evaluate.losses import margin
from nfm.evaluate.perturbation import check_images

# Of 10,000 queries: where the share of pixels of a square is halved (their Section 5).
HALVINGS = (10, 50, 200, 500, 1000, 2000, 4000, 6000, 8000)


@dataclass(frozen=True)
class Square(Attack):
    """`queries` proposals, each a square of +eps or -eps a channel, of a size that shrinks."""

    queries: int = 1000
    share: float = 0.8  # of the pixels, in the first square; AutoAttack's value

    name: ClassVar[str] = "square"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.norm != "linf":
            raise UsageError(f"square: expected norm 'linf', got {self.norm!r}")
        if self.queries < 1 or not 0 < self.share <= 1:
            raise UsageError(f"square: expected queries above 0 and a share in (0, 1], got {self}")

    def work(self) -> int:
        """Return the queries."""
        return self.queries

    def search(
        self, model: Classifier, x: Tensor, y: Tensor, stream: Stream, eps: float, attempt: int
    ) -> Tensor:
        """Return the best point met; an example is left alone once it is misclassified."""
        check_images(x, self.name)
        stripes = stream.uniform((x.shape[1], 1, x.shape[3]), purpose=1)
        point = (x + _signs(stripes, eps)).clamp_(0, 1)
        value = _gain(model, point, y)
        for query in range(self.queries):
            left = (value <= 0).nonzero()[:, 0]
            if len(left) == 0:
                break
            tried = self._propose(point[left], x[left], stream[left], eps, query)
            new = _gain(model, tried, y[left])
            better = new > value[left]
            point[left] = choose(better, tried, point[left])
            value[left] = torch.where(better, new, value[left])
        return point

    def _propose(self, point: Tensor, x: Tensor, stream: Stream, eps: float, query: int) -> Tensor:
        """Return `point` with one square an example set to x + eps or x - eps, channel by channel."""
        channels, height, width = x.shape[1:]
        side = self.side(query, height, width)
        draws = stream.uniform((2 + channels,), purpose=query + 2)
        square = rectangle(draws[:, :2], (side, side), (height, width))
        colour = _signs(draws[:, 2:], eps)[:, :, None, None]
        return torch.where(square, (x + colour).clamp(0, 1), point)

    def side(self, query: int, height: int, width: int) -> int:
        """Return the side of the square at a query, at least 1 and at most the image."""
        halved = sum(query > mark * self.queries / 10_000 for mark in HALVINGS)
        side = round(math.sqrt(self.share / 2**halved * height * width))
        return max(1, min(side, height, width))


def _gain(model: Classifier, point: Tensor, y: Tensor) -> Tensor:
    """Return the margin, infinite where the logits are not finite: nothing is more wrong."""
    logits = predict(model, point)
    return torch.where(logits.isfinite().all(1), margin(logits, y), torch.inf)


def _signs(uniform: Tensor, eps: float) -> Tensor:
    return torch.where(uniform < 0.5, -eps, eps)
