"""The one place where text becomes markup. A string is text and is escaped; only `tag` makes a `Markup`."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable
from typing import Any

from nfm.errors import DataError

# fmt: off
TAGS = frozenset((
    "a", "b", "button", "details", "div", "figcaption", "figure", "g", "h1", "h2", "h3", "header", "img", "li", "line",
    "main", "nav", "p", "path", "pre", "rect", "section", "small", "span", "summary", "svg", "table", "tbody", "td",
    "text", "th", "thead", "title", "tr", "ul",
))
# fmt: on
VOID = frozenset({"img"})
LOADS = {
    "href": "#",
    "src": "data:image/png;base64,",
}  # where an attribute may point to: into the page itself
# Control characters have no place in a page; those that turn the direction of writing could disguise a text.
UNFIT = re.compile(
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069\ufffe\uffff]"
)


class Markup(str):
    """Text that is markup already."""

    __slots__ = ()


Content = str | Markup | int | float | None | Iterable["Content"]


def escape(text: object) -> str:
    """Return any text as characters that mean only themselves, in content and in attributes.

    >>> escape("<b onclick='x'>&")
    '&lt;b onclick=&#x27;x&#x27;&gt;&amp;'
    """
    return html.escape(UNFIT.sub("\ufffd", str(text)), quote=True)


def tag(name: str, *content: Content, **attributes: str | float | bool | None) -> Markup:
    """Return an element; `class_` is ``class``, and an underscore inside a name is a hyphen.

    >>> tag("td", "a < b", class_="number", data_level=0.1)
    '<td class="number" data-level="0.1">a &lt; b</td>'
    """
    if name not in TAGS:
        raise ValueError(f"a page has no <{name}>")
    for key, start in LOADS.items():
        if key in attributes and not str(attributes[key]).startswith(start):
            raise ValueError(
                f"a page loads nothing: expected {key} to begin with {start!r}, got {attributes[key]!r}"
            )
    known = [(key, value) for key, value in attributes.items() if value is not None and value is not False]
    inside = "".join(f" {_name(key)}{_value(value)}" for key, value in known)
    return Markup(f"<{name}{inside}>" if name in VOID else f"<{name}{inside}>{join(content)}</{name}>")


def join(content: Content) -> Markup:
    """Return contents one after another: text escaped, markup as it is, nothing for None."""
    if content is None:
        return Markup("")
    if isinstance(content, Markup):
        return content
    if isinstance(content, str | int | float):
        return Markup(escape(content))
    return Markup("".join(join(part) for part in content))


def embed(data: Any) -> str:
    """Return `data` as JSON in which no end tag, comment or entity can begin.

    >>> embed({"name": "</script>"})
    '{"name": "\\\\u003c/script\\\\u003e"}'
    """
    try:
        plain = json.dumps(data, sort_keys=True, allow_nan=False)  # ASCII
    except ValueError as error:
        raise DataError(f"expected rows with finite numbers, got {error}") from None
    return plain.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _name(key: str) -> str:
    return {"viewBox": "viewBox", "class_": "class"}.get(key, key.replace("_", "-"))


def _value(value: str | float | bool | None) -> str:
    if value is True:
        return ""
    return f'="{escape(f"{value:.6g}" if isinstance(value, float) else value)}"'
