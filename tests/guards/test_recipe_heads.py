"""The heads of the studies tell numbers of ours, and they are those of the page of results."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from nfm.config.recipes import head_of

HOME = Path(__file__).parents[2]
STUDIES = sorted((HOME / "recipes" / "paper").glob("*.toml"))
ITEM = re.compile(r"(?P<line>.+), (?P<column>[^,]+): (?P<number>[\d.]+)")  # NFM (ours), σ=0.3: 71.9


def told_in(head: str) -> list[tuple[str, str, str]]:
    """Return line, column and number of each item of the head's "ours:", which ends where the next word begins."""
    (told,) = re.findall(r"^ours:(.*?)(?=^\w+:|\Z)", head, re.DOTALL | re.MULTILINE)
    items = [ITEM.fullmatch(" ".join(item.split())) for item in told.split(";")]
    assert all(items), told
    return [(item["line"], item["column"], item["number"]) for item in items if item]


def numbers_of(page: str, study: str) -> dict[tuple[str, str], str]:
    """Return our numbers of a study by line and column; of several tables, that of the first that has it."""
    (section,) = (
        part for part in re.split(r"^## ", page, flags=re.MULTILINE) if f"\n`{study}`; in the paper" in part
    )
    found: dict[tuple[str, str], str] = {}
    head, label = [], ""
    for line in section.splitlines():
        cells = [cell.strip() for cell in line.strip("| ").split(" | ")] if line.startswith("| ") else []
        if not cells:
            head = []
        elif not head:
            head = cells
        else:
            label = label if line.startswith("|  |") else cells[0]
            cells = cells if cells[0] == label else [label, *cells]
            if "paper" not in cells[1:2]:
                for column, cell in zip(head, cells, strict=True):
                    found.setdefault((label, column), cell.replace("*", "").split(" ")[0])
    return found


@pytest.mark.parametrize("study", STUDIES, ids=[path.stem for path in STUDIES])
def test_the_numbers_of_a_head_are_those_of_the_page(study: Path) -> None:
    numbers = numbers_of((HOME / "docs" / "results.md").read_text(encoding="utf-8"), study.stem)
    for line, column, number in told_in(head_of(study)):
        assert numbers[line, column] == number


def test_another_number_would_be_seen() -> None:
    table = (
        "| scheme |  | clean |\n| --- | ---: | ---: |\n| A | paper | 9.0 |\n|  | ours, n=3 | **7.0** ± 1.0 |"
    )
    assert numbers_of(f"# R\n\n## T\n\n`t`; in the paper: 1.\n\n{table}\n", "t")["A", "clean"] == "7.0"
    told = told_in("T.\ntime: 1\nours: A, clean: 7.0; B, c, d:\n8.1\nn: 3")
    assert told == [("A", "clean", "7.0"), ("B, c", "d", "8.1")]
