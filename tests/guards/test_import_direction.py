"""Imports go one way: errors, randomness ... <- core, results <- method, models, data <- ... <- cli."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator

import pytest
from sources import FILES, imported, module_name, room_of

LEVELS = [
    {"differing", "errors", "randomness", "registry"},
    {"core", "results"},
    {"method", "models", "data"},
    {"train", "evaluate", "theory"},
    {"plots", "integrations"},
    {"report"},
    {"config"},
    {"reproduce", "tune"},
    {"cli"},
]
ROWS_ONLY = {"plots"}  # it reads rows and nothing else of the package
# Against the rule, known by name: none goes upwards. The list may shrink, and says so when it can.
DEVIATIONS = {("plots", "data")}  # the published names of the corruptions
FOUNDATION = {"errors", "registry", "results"}
FRONT = {"__init__", "__main__"}  # the names of the front door come from everywhere, when first used
OPTIONAL = {
    "scipy",
    "sklearn",
    "PIL",
    "matplotlib",
    "rich",
    "safetensors",
    "timm",
    "torchvision",
    "transformers",
    "optuna",
}
HOUSE = [file for file in FILES if room_of(file) not in FRONT]


def allowed(room: str) -> set[str]:
    """Return the rooms that `room` may import from."""
    level = next(number for number, rooms in enumerate(LEVELS) if room in rooms)
    below = set().union(*LEVELS[:level])
    within = {"errors"} if level == 0 else set()  # the foundation stones share their errors
    return (below & FOUNDATION if room in ROWS_ONLY else below) | within | {room}


def wrong_imports(room: str, source: str) -> list[str]:
    rooms = [name.split(".")[1] for name in imported(ast.parse(source)) if name.startswith("nfm.")]
    return [name for name in rooms if name not in allowed(room)]


@pytest.mark.parametrize("file", HOUSE, ids=module_name)
def test_imports_go_one_way(file) -> None:
    room = room_of(file)
    assert any(room in rooms for rooms in LEVELS), f"the room {room} has no place in the house"
    wrong = [name for name in wrong_imports(room, file.read_text()) if (room, name) not in DEVIATIONS]
    assert wrong == []


def test_known_deviations_are_still_there() -> None:
    """One that is gone must leave the list, or it would come back unseen."""
    found = {
        (room_of(file), name) for file in HOUSE for name in wrong_imports(room_of(file), file.read_text())
    }
    assert found >= DEVIATIONS


@pytest.mark.parametrize(
    ("room", "source"),
    [
        ("core", "from nfm.method.sites import Site"),
        ("models", "import nfm.method.attach"),
        ("method", "def f():\n    from nfm.models import build"),
        ("plots", "from nfm.core.noise import Noise"),
        ("train", "from importlib import import_module\nimport_module('nfm.cli.train')"),
        ("evaluate", "from nfm.config import read"),
        ("registry", "from nfm.randomness import fold"),
    ],
)
def test_a_wrong_import_would_be_seen(room: str, source: str) -> None:
    assert wrong_imports(room, source) != []


def eager_imports(tree: ast.Module) -> Iterator[str]:
    """Yield what is imported when the module is, and not only when a function of it is called."""
    for node in tree.body:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if not isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield from imported(node)


@pytest.mark.parametrize("file", FILES, ids=module_name)
def test_optional_packages_are_imported_when_they_are_needed(file) -> None:
    early = [name for name in eager_imports(ast.parse(file.read_text())) if name.split(".")[0] in OPTIONAL]
    assert early == []
    assert list(eager_imports(ast.parse("import scipy.special"))) == ["scipy.special"]


def test_importing_the_package_costs_next_to_nothing() -> None:
    """Not even torch is imported before a name is used."""
    script = "import nfm, sys; print(sorted({'torch', 'numpy'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
