"""Scales, round ticks and the frame of a chart, in SVG."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from nfm.report.markup import Markup, join, tag

WIDTH, HEIGHT = 340, 230
LEFT, RIGHT, TOP, BOTTOM = 34, 12, 22, 34  # margins


@dataclass(frozen=True)
class Axis:
    """A range of values, the ticks in it, and what is measured."""

    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]
    label: str

    def place(self, value: float, first: float, last: float) -> float:
        """Return where `value` is between the pixels `first` and `last`."""
        span = self.high - self.low or 1.0
        return round(first + (value - self.low) / span * (last - first), 2)

    def x(self, value: float) -> float:
        """Return the horizontal place."""
        return self.place(value, LEFT, WIDTH - RIGHT)

    def y(self, value: float) -> float:
        """Return the vertical place; up is more."""
        return self.place(value, HEIGHT - BOTTOM, TOP)


def round_axis(
    values: Iterable[float], label: str, *, low: float | None = None, high: float | None = None
) -> Axis:
    """Return an axis over `values` that begins and ends at a round number, unless told where.

    >>> [text for _, text in round_axis([0.03, 0.97], "share").ticks]
    ['0', '0.2', '0.4', '0.6', '0.8', '1']
    """
    known = list(values) or [0.0, 1.0]
    least, most = min(known) if low is None else low, max(known) if high is None else high
    step = round_step((most - least) or 1.0)
    first = least if low is not None else math.floor(least / step + 1e-9) * step
    last = most if high is not None else math.ceil(most / step - 1e-9) * step
    count = int((last - first) / step + 1e-9)
    marks = [first + place * step for place in range(count + 1)]
    return Axis(
        first, last if last > first else first + step, tuple((mark, f"{mark:g}"[:6]) for mark in marks), label
    )


def round_step(span: float) -> float:
    """Return 1, 2 or 5 times a power of ten that cuts `span` into four to eight parts."""
    power = 10.0 ** math.floor(math.log10(span / 4))
    return next(power * factor for factor in (1, 2, 5, 10) if span / (power * factor) <= 7)


def frame(x: Axis, y: Axis) -> Markup:
    """Return the grid, the ticks and the labels."""
    bottom, end = HEIGHT - BOTTOM, WIDTH - RIGHT
    across = [
        tag("line", class_="grid", x1=LEFT, x2=end, y1=y.y(value), y2=y.y(value)) for value, _ in y.ticks
    ]
    beside = [tag("text", text, class_="tick end", x=LEFT - 6, y=y.y(value) + 3.5) for value, text in y.ticks]
    below = [tag("text", text, class_="tick middle", x=x.x(value), y=bottom + 14) for value, text in x.ticks]
    base = tag("line", class_="axis", x1=LEFT, x2=end, y1=bottom, y2=bottom)
    names = [
        tag("text", x.label, class_="name middle", x=(LEFT + end) / 2, y=HEIGHT - 5),
        tag("text", y.label, class_="name", x=2, y=9),
    ]
    return join([across, base, beside, below, names])
