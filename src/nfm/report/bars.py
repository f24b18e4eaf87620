"""Bars that lie: one group a key, one bar a scheme, with whiskers; the names have room at the left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nfm.plots.comparison import Estimate
from nfm.report.chart import colour
from nfm.report.markup import Markup, tag

WIDTH, NAMES, END = 380, 112, 12
BAR, GAP, TOP, BOTTOM = 8, 8, 6, 20
SCALE = (WIDTH - NAMES - END) / 100  # pixels a point


def bars(
    title: str,
    keys: Sequence[tuple[Any, str]],
    found: Sequence[Mapping[Any, Estimate]],
    schemes: Sequence[int],
) -> Markup:
    """Return a figure; `keys` are (key, name), `found` has the estimates of each of the `schemes` by key."""
    group = BAR * len(schemes) + GAP
    height = TOP + group * len(keys) + BOTTOM
    names = [
        tag("text", name, class_="tick end", x=NAMES - 8, y=TOP + group * (row + 0.5) + 3)
        for row, (_, name) in enumerate(keys)
    ]
    drawn = [
        tag(
            "g",
            _scheme(keys, means, BAR * place, group),
            class_=f"series {colour(scheme)}",
            data_scheme=scheme,
        )
        for place, (scheme, means) in enumerate(zip(schemes, found, strict=True))
    ]
    picture = tag(
        "svg", _grid(height), names, drawn, viewBox=f"0 0 {WIDTH} {height:g}", role="img", aria_label=title,
        data_along="y",
    )  # fmt: skip
    return tag("figure", tag("figcaption", title), picture, class_="panel")


def _grid(height: float) -> list[Markup]:
    places = [(NAMES + value * SCALE, f"{value}") for value in (0, 20, 40, 60, 80, 100)]
    lines = [tag("line", class_="grid", x1=x, x2=x, y1=TOP, y2=height - BOTTOM) for x, _ in places]
    return lines + [tag("text", text, class_="tick middle", x=x, y=height - 6) for x, text in places]


def _scheme(
    keys: Sequence[tuple[Any, str]], means: Mapping[Any, Estimate], offset: float, group: float
) -> list[list[Markup]]:
    return [
        _bar(means[key], name, TOP + group * row + GAP / 2 + offset)
        for row, (key, name) in enumerate(keys)
        if key in means
    ]


def _bar(estimate: Estimate, name: str, y: float) -> list[Markup]:
    ends = (estimate.lo, estimate.mean, estimate.hi)
    low, mean, high = (NAMES + 100 * max(0.0, min(1.0, value)) * SCALE for value in ends)
    middle = y + BAR / 2
    tip = f"{100 * estimate.mean:.1f} [{100 * estimate.lo:.1f}, {100 * estimate.hi:.1f}]"
    bar = tag(
        "rect", tag("title", f"{name}: {tip}"), class_="dot bar", x=NAMES, y=y, width=mean - NAMES,
        height=BAR - 1, data_at=name, data_tip=tip, data_x=mean, data_y=middle,
    )  # fmt: skip
    return [bar, tag("line", class_="whisker", x1=low, x2=high, y1=middle - 0.5, y2=middle - 0.5)]
