"""Pages of the documentation: in the menu, with links and row numbers that lead somewhere, and no room forgotten."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from sources import PACKAGE, ROOT

DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
TEXTS = [
    path
    for folder in ("src", "recipes", "docs", "tests", "examples", "benchmarks")
    for path in sorted((ROOT / folder).rglob("*"))
    if path.suffix in (".py", ".toml", ".md") and path != Path(__file__)
]
LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)\s]*)?\)")  # an address of the tree, not of the web
NUMBERED = re.compile(r"^\| (\d+) \|", re.MULTILINE)
REFERENCE = re.compile(r"differences\.md\)?, rows? ([\d, and]+)")
ROOM = re.compile(r"^\| `(\w+)/` \|", re.MULTILINE)


def dead_links(page: Path, text: str) -> list[str]:
    """Return the links of a page that lead nowhere."""
    return [link for link in LINK.findall(text) if not (page.parent / link).exists()]


def rows_meant(text: str) -> Iterator[int]:
    """Yield the rows of docs/differences.md that a text refers to."""
    for found in REFERENCE.findall(text):
        yield from map(int, re.findall(r"\d+", found))


def rows_told() -> list[int]:
    return [int(number) for number in NUMBERED.findall((DOCS / "differences.md").read_text("utf-8"))]


def test_every_page_is_in_the_menu() -> None:
    menu = re.findall(r": (\S+\.md)$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.MULTILINE)
    assert sorted(menu) == [str(page.relative_to(DOCS)) for page in PAGES]


def test_the_first_page_leads_to_all_others() -> None:
    linked = set(LINK.findall((DOCS / "index.md").read_text("utf-8")))
    assert linked >= {page.name for page in DOCS.glob("*.md")} - {"index.md"}


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    assert dead_links(page, page.read_text("utf-8")) == []


def test_a_dead_link_would_be_seen() -> None:
    text = "[a](results.md#there), [b](gone.md), [c](https://pytorch.org/gone.md), ![d](images/gone.png)"
    assert dead_links(DOCS / "index.md", text) == ["gone.md", "images/gone.png"]


def test_rows_of_the_differences_are_counted_through() -> None:
    assert rows_told() == list(range(1, len(rows_told()) + 1))


def test_rows_that_are_referred_to_are_there() -> None:
    meant = {str(path.relative_to(ROOT)): set(rows_meant(path.read_text("utf-8"))) for path in TEXTS}
    assert sum(map(bool, meant.values())) >= 10
    assert {path: rows for path, rows in meant.items() if rows - set(rows_told())} == {}


def test_a_row_that_is_not_there_would_be_seen() -> None:
    assert list(rows_meant("# (docs/differences.md, rows 1, 2 and 99)")) == [1, 2, 99]
    assert list(rows_meant("([Differences](../differences.md), row 7).")) == [7]
    assert 99 not in rows_told()


def test_the_design_has_a_line_for_every_room() -> None:
    told = ROOM.findall((DOCS / "design.md").read_text("utf-8"))
    assert sorted(told) == sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py"))
    assert ROOM.findall("| `core/` | the paper |\n| core | no room |") == ["core"]
