"""Claims -> the page of results, the same bytes for the same claims."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from nfm.errors import DataError
from nfm.reproduce.front import write_front
from nfm.reproduce.kinds import show_table
from nfm.results import Row, write_atomically

IMAGES = Path("images/results")
HEAD = """# Results

Written by `nfm reproduce --write-docs` from `claims/`; nothing here is typed by hand. Every number of ours was made by
`nfm reproduce ID` at the scale that is told, from the rows in `claims/rows`. "paper" is what was published; a number
with a † is known to be wrong, and why stands below its table. Numbers of the two protocols (`authors`: noise after
normalisation, unclipped; `pixel`: in [0, 1], clipped) are never comparable with each other. Several seeds are shown as
mean ± standard deviation, one seed with the 95% interval of its test examples.
"""


def write_page(claims: Path, docs: Path) -> Path:
    """Write docs/results.md from the claims there are, and what the README shows of them."""
    found = {path.stem: _read(path) for path in sorted(claims.glob("*.json"))}
    if not found:
        raise DataError(f"{claims}: expected the claims of at least one study (nfm reproduce ID), got none")
    parts = [HEAD, *(part for claim in found.values() for part in _sections(claim, docs))]
    path = docs / "results.md"
    write_atomically(path, ("\n".join(parts).rstrip() + "\n").encode())
    write_front(found, docs / IMAGES, docs.parent / "README.md")
    return path


def _read(path: Path) -> Row:
    try:
        claim = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataError(f"{path}: expected a claim, got {error}") from None
    if not isinstance(claim, dict) or "scales" not in claim:
        raise DataError(f"{path}: expected a claim of `nfm reproduce`, got something else")
    return claim


def _sections(claim: Row, docs: Path) -> Iterator[str]:
    yield f"## {claim['title']}\n"
    yield f"`{claim['id']}`; in the paper: {claim['source']}.\n"
    yield from (f"- {note}" for note in claim["notes"])
    if not claim["scales"]:
        yield "\nNot run yet: there are no rows.\n"
    for scale, made in claim["scales"].items():
        yield f"\n### {claim['title']}, {scale} scale\n"
        yield f"Made by `nfm reproduce {claim['id']} --scale {scale}`.\n"
        yield from (show_table(table) + "\n" for table in made["tables"])
        for picture in sorted((docs / IMAGES).glob(f"{claim['id']}-{scale}-*.png")):
            yield f"![{claim['title']}, {scale} scale]({IMAGES / picture.name})\n"
