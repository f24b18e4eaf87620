"""Every example in a docstring, the README and the documentation runs."""

from __future__ import annotations

import doctest
import importlib
import re
from pathlib import Path

import pytest
import torch
from sources import FILES, ROOT, module_name

from nfm.errors import EnvironmentProblem

WITH_EXAMPLES = [file for file in FILES if ">>>" in file.read_text()]
PYTHON_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(text: str) -> list[str]:
    """Return the Python blocks of a Markdown text."""
    return PYTHON_BLOCK.findall(text)


PAGES = [
    page for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))] if blocks(page.read_text())
]


@pytest.mark.parametrize("file", WITH_EXAMPLES, ids=module_name)
def test_docstring_examples(file: Path) -> None:
    try:
        module = importlib.import_module(module_name(file))
    except (ImportError, RuntimeError, EnvironmentProblem) as error:
        pytest.skip(f"{module_name(file)} does not import here: {error}")
    found = doctest.testmod(module, optionflags=doctest.ELLIPSIS)
    assert found.attempted > 0
    assert found.failed == 0


def run(page: str, text: str) -> None:
    """Run the blocks of a page one after the other, as a reader would."""
    names: dict[str, object] = {"__name__": "__main__"}
    for number, block in enumerate(blocks(text), start=1):
        exec(compile(block, f"{page}, block {number}", "exec"), names)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        run(page.name, page.read_text())


def test_the_readme_has_examples() -> None:
    assert ROOT / "README.md" in PAGES


def test_a_failing_block_would_be_seen() -> None:
    text = "words\n```python\nx = 1\n```\nmore\n```python\nassert x == 2, 'seen'\n```\n```bash\nfalse\n```\n"
    assert len(blocks(text)) == 2
    with pytest.raises(AssertionError, match="seen"):
        run("page", text)
