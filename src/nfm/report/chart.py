"""Panels of lines with bands and dots, as SVG that needs no script; a script adds what appears under the pointer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nfm.report.axes import BOTTOM, HEIGHT, LEFT, TOP, WIDTH, Axis, frame
from nfm.report.markup import Markup, join, tag

COLOURS = 7
SHAPES = (
    "M-3,0a3,3 0 1,0 6,0a3,3 0 1,0 -6,0Z", "M-2.8,-2.8h5.6v5.6h-5.6Z", "M0,-4L4,0L0,4L-4,0Z",
    "M0,-3.8L3.8,3L-3.8,3Z", "M0,3.8L3.8,-3L-3.8,-3Z", "M-1.2,-3.4h2.4v2.2h2.2v2.4h-2.2v2.2h-2.4v-2.2h-2.2v-2.4h2.2Z",
    "M-3.5,-1.5h7v3h-7Z",
)  # fmt: skip


@dataclass(frozen=True)
class Point:
    """A place, its band if it has one, where it is in words (`at`) and what it says (`tip`)."""

    x: float
    y: float
    at: str
    tip: str
    lo: float | None = None
    hi: float | None = None
    size: float = 1.0
    dot: bool = True


@dataclass(frozen=True)
class Series:
    """The line of one scheme; `scheme` is its number on the page, which decides colour and shape."""

    scheme: int
    points: tuple[Point, ...]
    dashed: bool = False


@dataclass(frozen=True)
class Panel:
    """One chart; `along` is the direction in which the nearest point is looked for: x, or xy."""

    title: str
    x: Axis
    y: Axis
    series: tuple[Series, ...]
    along: str = "x"
    diagonal: bool = False


def colour(scheme: int) -> str:
    """Return the class that gives a scheme its colour."""
    return f"s{scheme % COLOURS}"


def draw(panel: Panel) -> Markup:
    """Return a figure with the panel's title and its chart."""
    ends = (panel.x.low, panel.x.high)
    diagonal = (
        _path([(panel.x.x(end), panel.y.y(end)) for end in ends], "diagonal") if panel.diagonal else None
    )
    cross = tag("line", class_="cross", x1=LEFT, x2=LEFT, y1=TOP, y2=HEIGHT - BOTTOM)
    inside = [frame(panel.x, panel.y), diagonal, cross, [_series(panel, series) for series in panel.series]]
    picture = tag(
        "svg",
        inside,
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="img",
        aria_label=panel.title,
        data_along=panel.along,
    )
    return tag("figure", tag("figcaption", panel.title), picture, class_="panel")


def _series(panel: Panel, series: Series) -> Markup:
    places = [(panel.x.x(point.x), panel.y.y(point.y)) for point in series.points]
    line = _path(places, "line dashed" if series.dashed else "line") if len(places) > 1 else None
    dots = [_dot(series.scheme, place, point) for place, point in zip(places, series.points, strict=True)]
    classes = f"series {colour(series.scheme)}"
    return tag("g", _band(panel, series), line, dots, class_=classes, data_scheme=series.scheme)


def _band(panel: Panel, series: Series) -> Markup | None:
    known = [point for point in series.points if point.lo is not None and point.hi is not None]
    if len(known) < 2:
        return None
    low = [(panel.x.x(point.x), panel.y.y(_inside(panel.y, point.lo))) for point in known]
    high = [(panel.x.x(point.x), panel.y.y(_inside(panel.y, point.hi))) for point in reversed(known)]
    return tag("path", d=_walk(low + high) + "Z", class_="band")


def _inside(axis: Axis, value: float | None) -> float:
    return min(max(value if value is not None else axis.low, axis.low), axis.high)


def _dot(scheme: int, place: tuple[float, float], point: Point) -> Markup:
    x, y = place
    shape = tag("title", f"{point.at}: {point.tip}")
    return tag(
        "path", shape, d=SHAPES[scheme % len(SHAPES)], class_="dot" if point.dot else "dot faint",
        transform=f"translate({x:g},{y:g}) scale({point.size:.3g})", data_at=point.at, data_tip=point.tip,
        data_x=x, data_y=y,
    )  # fmt: skip


def _path(places: Sequence[tuple[float, float]], classes: str) -> Markup:
    return tag("path", d=_walk(places), class_=classes)


def _walk(places: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:g},{y:g}" for x, y in places)


def panels(made: Sequence[Panel]) -> Markup:
    """Return several charts side by side, as many as there is room for."""
    return tag("div", join([draw(panel) for panel in made]), class_="panels")


def legend(schemes: Sequence[str]) -> Markup:
    """Return a button a scheme; a click hides the scheme, or shows it again."""
    keys = [_key(place, scheme) for place, scheme in enumerate(schemes)]
    return tag("div", keys, class_="legend", role="group", aria_label="show or hide a scheme")


def _key(place: int, scheme: str) -> Markup:
    return tag(
        "button", mark(place), tag("span", scheme), type="button", class_=f"key {colour(place)}",
        data_scheme=place, aria_pressed="true",
    )  # fmt: skip


def mark(scheme: int) -> Markup:
    """Return the shape of a scheme, in its colour."""
    shape = tag("path", d=SHAPES[scheme % len(SHAPES)], class_="dot")
    return tag("svg", shape, viewBox="-5 -5 10 10", class_=f"mark {colour(scheme)}", aria_hidden="true")


def label(place: int, scheme: str) -> Markup:
    """Return the name of a scheme with its mark, for the head of a line."""
    return tag("span", mark(place), tag("span", scheme), class_="label")
