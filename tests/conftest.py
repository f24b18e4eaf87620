"""What every test shares: one thread, repeatable property tests, a guard of the global generators."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import settings

from comparing import assert_global_generators_untouched
from nfm.core import compiled

settings.register_profile("repeatable", max_examples=25, deadline=None, derandomize=True, database=None)
settings.load_profile("repeatable")
torch.set_num_threads(1)  # tensors are tiny: a second thread costs more than it gives


@pytest.fixture
def untouched_generators() -> Iterator[None]:
    """Fail if the test moves a global generator of Python, numpy or torch."""
    with assert_global_generators_untouched():
        yield


@pytest.fixture
def fresh_compiler() -> Iterator[None]:
    """Compile from nothing, and leave nothing compiled behind; the compiler's settings come back too."""
    logging.getLogger("torch.__trace").setLevel(logging.WARNING)  # pytest would keep every line of it
    torch.compiler.reset()
    with torch._dynamo.config.patch(recompile_limit=torch._dynamo.config.recompile_limit):
        yield
    torch.compiler.reset()


@pytest.fixture(params=["one thread", "OpenMP's threads", "threads of its own"])
def kernel_threads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let the compiled kernel use threads for little, too."""
    for name in ("MIXED_A_THREAD", "TO_MAKE_A_THREAD"):
        monkeypatch.setattr(compiled, name, 1)
    monkeypatch.setattr(compiled, "_FORKED", [True] if request.param == "threads of its own" else [])
    before = torch.get_num_threads()
    torch.set_num_threads(1 if request.param == "one thread" else 2)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def real_data() -> Path:
    """Return the folder with CIFAR-10 and the published weights, or skip."""
    beside = Path(__file__).parents[2] / "shared" / "data"
    folder = Path(os.environ.get("NFM_DATA", beside))
    if not (folder / "weights").is_dir() or not (folder / "unpack.py").is_file():
        pytest.skip(f"no packed CIFAR-10 and published weights in {folder}; set NFM_DATA to their folder")
    return folder
