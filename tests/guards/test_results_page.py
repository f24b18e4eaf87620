"""The page of results and the README's part are those of the claims."""

from __future__ import annotations

import shutil
from pathlib import Path

from nfm.reproduce.pages import IMAGES, write_page

HOME = Path(__file__).parents[2]


def page_of(claims: Path, folder: Path) -> tuple[bytes, bytes]:
    """Return the page and the README that `claims` make in a folder that has our figures."""
    docs = folder / "docs"
    shutil.copytree(HOME / "docs" / IMAGES, docs / IMAGES)
    shutil.copy(HOME / "README.md", folder)
    return write_page(claims, docs).read_bytes(), (folder / "README.md").read_bytes()


def test_page_and_readme_are_made_of_the_claims(tmp_path: Path) -> None:
    ours = (HOME / "docs" / "results.md").read_bytes(), (HOME / "README.md").read_bytes()
    assert page_of(HOME / "claims", tmp_path / "same") == ours
    changed = tmp_path / "claims"
    shutil.copytree(HOME / "claims", changed, ignore=shutil.ignore_patterns("rows"))
    table = changed / "cifar10-resnet18.json"
    table.write_text(
        table.read_text(encoding="utf-8").replace('"mean": 0.7', '"mean": 0.6'), encoding="utf-8"
    )
    page, readme = page_of(changed, tmp_path / "changed")
    assert page != ours[0]
    assert readme != ours[1]
