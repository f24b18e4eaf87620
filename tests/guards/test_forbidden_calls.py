"""Calls that the package never makes: global randomness, unpickling, unsafe loading and extracting."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest
from sources import FILES, dotted, imported, module_name

GLOBAL_SEEDS = {
    "torch.manual_seed", "torch.seed", "torch.set_rng_state", "torch.random.manual_seed", "torch.random.seed",
    "torch.cuda.manual_seed", "torch.cuda.manual_seed_all",
}  # fmt: skip
LEGACY_NUMPY = ("np.random.", "numpy.random.")
OWN_GENERATORS = {
    "Generator", "Philox", "SFC64", "SeedSequence", "default_rng", "BitGenerator", "bit_generator", "ISeedSequence",
}  # fmt: skip
UNSAFE = {"pickle.load", "pickle.loads", "yaml.load", "eval", "exec", "os.system"}
UNSAFE_METHODS = {"extractall"}
UNSAFE_SETTINGS = {("weights_only", False), ("allow_pickle", True), ("shell", True)}


def complaints(source: str) -> Iterator[str]:
    """Yield what the package must not do."""
    tree = ast.parse(source)
    if "random" in {name.split(".")[0] for name in imported(tree)}:
        yield "imports Python's global generator"
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Attribute)
            and dotted(node).startswith(LEGACY_NUMPY)
            and node.attr not in OWN_GENERATORS
        ):
            yield f"{dotted(node)}: numpy's global generator"
        if not isinstance(node, ast.Call):
            continue
        name = dotted(node.func)
        settings = {(k.arg, k.value.value) for k in node.keywords if isinstance(k.value, ast.Constant)}
        if name in GLOBAL_SEEDS:
            yield f"{name}: torch's global generator"
        if name in UNSAFE or (isinstance(node.func, ast.Attribute) and node.func.attr in UNSAFE_METHODS):
            yield f"{name}: unsafe"
        if settings & UNSAFE_SETTINGS:
            yield f"{name}: {settings & UNSAFE_SETTINGS}"
        if name == "torch.load" and ("weights_only", True) not in settings:
            yield "torch.load without weights_only=True"


@pytest.mark.parametrize("file", FILES, ids=module_name)
def test_the_package_never_calls_it(file) -> None:
    assert list(complaints(file.read_text())) == []


@pytest.mark.parametrize(
    "source",
    [
        "torch.manual_seed(0)",
        "np.random.seed(0)",
        "x = np.random.beta(1, 1)",
        "import random",
        "from random import choice",
        "pickle.load(file)",
        "torch.load(path)",
        "torch.load(path, weights_only=False)",
        "np.load(path, allow_pickle=True)",
        "yaml.load(text)",
        "archive.extractall(folder)",
        "subprocess.run(command, shell=True)",
        "eval(text)",
    ],
)
def test_it_would_be_seen(source: str) -> None:
    assert list(complaints(source)) != []


def test_what_is_meant_is_not_complained_about() -> None:
    source = "np.random.Generator(np.random.Philox(key=1)); torch.load(f, weights_only=True); model.eval()"
    assert list(complaints(source)) == []
