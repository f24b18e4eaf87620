"""DistributedDataParallel over two gloo processes started by torchrun."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
STEPS = 10


def run(folder: Path, *forms: str) -> list[dict]:
    """Train in two processes; return the rows of each rank."""
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    environment = os.environ | {"PYTHONPATH": str(HERE.parent), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *command, str(HERE / "ddp_script.py"), str(folder), *forms],
        env=environment, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [json.loads((folder / f"rank{rank}.json").read_text()) for rank in (0, 1)]


def assert_independent_draws_and_equal_parameters(first: dict, second: dict) -> None:
    """Each rank its own weight, noise and site; the same parameters; gradients are the mean of both ranks'."""
    assert len(first["site"]) == STEPS
    assert all(one != other for one, other in zip(first["weight"], second["weight"], strict=True))
    assert all(one != other for one, other in zip(first["noise"], second["noise"], strict=True))
    assert first["site"] != second["site"]
    assert set(first["site"] + second["site"]) == {"input", "stem", "first", "second"}
    assert all(first["equal"] + second["equal"])
    assert max(first["average"] + second["average"]) < 1e-5


def test_both_forms_and_checkpointing(tmp_path: Path) -> None:
    forms = ("functional", "attached", "checkpointed")
    first, second = run(tmp_path, *forms)
    for form in forms:
        assert_independent_draws_and_equal_parameters(first[form], second[form])
        assert first[form] == first["functional"]


@pytest.mark.slow
def test_compiled(tmp_path: Path) -> None:
    first, second = run(tmp_path, "functional", "compiled")
    assert_independent_draws_and_equal_parameters(first["compiled"], second["compiled"])
    assert first["compiled"]["weight"] == first["functional"]["weight"]


def test_equal_ranks_would_be_seen() -> None:
    """The control: the same rows twice are no independent draws."""
    row = {"site": ["input"] * STEPS, "weight": [0.5] * STEPS, "noise": [[0.0]] * STEPS}
    with pytest.raises(AssertionError):
        assert_independent_draws_and_equal_parameters(row, row)
