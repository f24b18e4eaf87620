"""How tests read a page: its elements, attributes and texts, by the parser of the standard library."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

PAYLOADS = (
    "<script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    "</title><script>alert(1)</script>",
    "</style><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<svg onload=alert(1)>",
    '"><script>alert(1)</script>',
    "'><script>alert(1)</script>",
    '" onmouseover="alert(1)',
    "' onfocus='alert(1)' autofocus='",
    "javascript:alert(1)",
    "<a href=javascript:alert(1)>x</a>",
    "<iframe src=https://example.org></iframe>",
    "<object data=https://example.org></object>",
    "<embed src=https://example.org>",
    "<link rel=stylesheet href=//example.org>",
    "<meta http-equiv=refresh content=0;url=https://example.org>",
    "<base href=https://example.org/>",
    "<form action=https://example.org><input></form>",
    "<style>@import url(https://example.org)</style>",
    "<math><mtext></mtext><script>alert(1)</script></math>",
    "<!-- --><script>alert(1)</script>",
    "--><script>alert(1)</script>",
    "]]><script>alert(1)</script>",
    "<![CDATA[<script>alert(1)</script>]]>",
    "<?xml version='1.0'?><script>alert(1)</script>",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "&#60;script&#62;",
    "\u2028alert(1)//",
    "\u202e\u2066<b>",
    "\x00<script>alert(1)</script>",
    "<scr\x00ipt>alert(1)</scr\x00ipt>",
    "\ud800<script>",
    "${alert(1)} `${alert(1)}`",
    "$body $script ${data}",
    "{{7*7}} {% raw %}",
    "<details open ontoggle=alert(1)>",
    "<video><source onerror=alert(1)></video>",
    "\\u003cscript\\u003e",
    "</textarea></noscript><b>",
    "<table><tr><td>",
    "<plaintext>",
    "x" * 500 + "<b>",
)


@dataclass
class Page(HTMLParser):
    """A page as a browser would split it up."""

    text: str
    tags: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    attributes: list[tuple[str, str, str]] = field(default_factory=list)
    inside: dict[str, list[str]] = field(default_factory=dict)
    comments: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._open: list[str] = []
        self.feed(self.text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, tuple(name for name, _ in attrs)))
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in ("meta", "img"):
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open, f"</{tag}> without a beginning"
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        for tag in dict.fromkeys(self._open):
            self.inside.setdefault(tag, []).append(data)

    def handle_comment(self, data: str) -> None:
        self.comments.append(data)

    def close(self) -> None:
        super().close()
        assert self._open == [], f"left open: {self._open}"

    def values(self, name: str) -> list[str]:
        """Return the values of every attribute called `name`."""
        return [value for _, key, value in self.attributes if key == name]
