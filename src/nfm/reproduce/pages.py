"""Claims -> the page of results, the same bytes for the same claims."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from nfm.errors import DataError, UsageError
from nfm.reproduce.front import write_front
from nfm.reproduce.in_short import in_short
from nfm.reproduce.kinds import show_table
from nfm.results import Row, read_object, write_atomically

IMAGES = Path("images/results")
FIRST = ("cifar10-resnet18", "toy-boundaries", "discrepancies")  # of the page, where there are such
HEAD = """# Results

Written by `nfm reproduce --write-docs` from `claims/`; nothing here is typed by hand. Every number of ours was made by
`nfm reproduce ID` at the scale that is told, from the rows in `claims/rows`. "paper" is what was published; a number
with a † is known to be wrong or wrongly labelled, and why stands below its table. Numbers of the two protocols
(`authors`: noise after normalisation, unclipped; `pixel`: in [0, 1], clipped) are never comparable with each other.
Several seeds are shown as mean ± standard deviation, one seed with the 95% interval of its test examples. In bold: the
highest of a column, where it is of three seeds or more.
"""


def write_page(claims: Path, docs: Path) -> Path:
    """Write docs/results.md from the claims there are, and what the README shows of them."""
    found = {path: read_object(path, "a claim") for path in sorted(claims.glob("*.json"), key=_place)}
    if not found:
        raise DataError(f"{claims}: expected the claims of at least one study (nfm reproduce ID), got none")
    shown = [part for path, claim in found.items() for part in _shown(path, claim, docs)]
    parts = [HEAD, *_opening(found.values()), *shown]
    path = docs / "results.md"
    write_atomically(path, ("\n".join(parts).rstrip() + "\n").encode())
    write_front({path.stem: claim for path, claim in found.items()}, docs / IMAGES, docs.parent / "README.md")
    return path


def _place(path: Path) -> tuple[int, str]:
    return FIRST.index(path.stem) if path.stem in FIRST else len(FIRST), path.stem


def _opening(claims: Iterable[Row]) -> list[str]:
    """Return what the page says first: the answers of all studies."""
    told = in_short(claims)
    return ["## In short\n", *told, ""] if told else []


def _shown(path: Path, claim: Row, docs: Path) -> list[str]:
    """Return the sections of a claim; refuse one that lacks what they need."""
    try:
        return list(_sections(claim, docs))
    except (LookupError, TypeError, AttributeError, ValueError, UsageError) as error:
        raise DataError(
            f"{path}: expected a claim of `nfm reproduce`, got one that cannot be shown ({error!r}); make it anew "
            f"with `nfm reproduce {path.stem} --from-rows`, or take it away"
        ) from error


def _sections(claim: Row, docs: Path) -> Iterator[str]:
    yield f"## {claim['title']}\n"
    yield f"`{claim['id']}`; in the paper: {claim['source']}.\n"
    yield from (f"- {note}" for note in claim["notes"])
    for scale, made in claim["scales"].items():
        yield f"\n### {claim['title']}, {scale} scale\n"
        yield f"Made by `nfm reproduce {claim['id']} --scale {scale}`.\n"
        yield from (show_table(table) + "\n" for table in made["tables"])
        yield from _fits(made["training"])
        for picture in sorted((docs / IMAGES).glob(f"{claim['id']}-{scale}-*.png")):
            yield f"![{claim['title']}, {scale} scale]({IMAGES / picture.name})\n"


def _fits(trained: Sequence[Row]) -> Iterator[str]:
    """Yield how well each arm fits its training set: what underfits says little of a regulariser.

    Not where arms share their names: those of other studies, and the settings that one is chosen from.
    """
    if trained and len({arm["label"] for arm in trained}) == len(trained):
        told = "; ".join(f"{arm['label']} {100 * arm['probe_accuracy']:.1f}" for arm in trained)
        yield f"Accuracy in % on clean training images after the last epoch: {told}.\n"
