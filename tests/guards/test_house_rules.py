"""Small rules of the house: public names, file sizes, names of rooms, comparison helpers that compare."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest
from sources import FILES, PACKAGE, ROOT, dotted, module_name

import nfm
from nfm.errors import EnvironmentProblem

CEILING = 300
NO_ROOMS = {"utils", "util", "helpers", "common", "misc", "manager", "tools", "base"}
PUBLIC = [file for file in FILES if "__all__" in file.read_text()]


@pytest.mark.parametrize("file", PUBLIC, ids=module_name)
def test_every_public_name_is_a_string_and_can_be_imported(file: Path) -> None:
    try:
        module = importlib.import_module(module_name(file))
    except (ImportError, RuntimeError, EnvironmentProblem) as error:
        pytest.skip(f"{module_name(file)} does not import here: {error}")
    assert module.__all__
    assert len(set(module.__all__)) == len(module.__all__)
    for name in module.__all__:
        assert isinstance(name, str)
        assert getattr(module, name) is not None


def test_the_front_door() -> None:
    assert set(dir(nfm)) == set(nfm.__all__)
    with pytest.raises(AttributeError, match="module 'nfm' has no attribute 'Nois'; it has: "):
        _ = nfm.Nois


def too_long(text: str) -> bool:
    return text.count("\n") > CEILING


@pytest.mark.parametrize("file", FILES, ids=module_name)
def test_no_file_is_longer_than_the_ceiling(file: Path) -> None:
    assert not too_long(file.read_text())
    assert too_long("\n" * (CEILING + 1))


def test_no_room_is_called_after_nothing() -> None:
    names = {part.removesuffix(".py") for file in FILES for part in file.relative_to(PACKAGE).parts}
    assert names & NO_ROOMS == set()
    assert {"core", "method", "noise"} <= names


def asserts(function: ast.FunctionDef) -> bool:
    """Tell whether a function can fail a test."""
    return any(
        isinstance(node, ast.Assert)
        or (isinstance(node, ast.Call) and dotted(node.func).split(".")[-1].startswith(("assert_", "raises")))
        for node in ast.walk(function)
    )


def functions_called_assert(source: str) -> list[ast.FunctionDef]:
    nodes = ast.walk(ast.parse(source))
    return [node for node in nodes if isinstance(node, ast.FunctionDef) and node.name.startswith("assert_")]


def test_comparison_helpers_compare() -> None:
    found = {
        f"{file.name}: {function.name}": asserts(function)
        for file in (ROOT / "tests").rglob("*.py")
        for function in functions_called_assert(file.read_text())
    }
    assert len(found) >= 5
    assert [name for name, compares in found.items() if not compares] == []
    (empty,) = functions_called_assert("def assert_nothing(a, b):\n    return a == b")
    assert not asserts(empty)


def test_test_files_have_names_of_their_own() -> None:
    """Test folders are no packages, so two files of one name would hide each other."""
    names = [file.name for file in (ROOT / "tests").rglob("test_*.py")]
    assert sorted(names) == sorted(set(names))
