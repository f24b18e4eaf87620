"""Every scheme over two gloo processes: each rank its own draws, the same parameters, the mean of the gradients."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from nfm.method.presets import PRESETS
from nfm.method.schemes import SCHEMES

HERE = Path(__file__).parent
FIRST = "noisymix"
COMPOSED = ["adversarial + nfm", "nfm + label_smoothing", "mixup | cutmix"]
OTHERS = [name for name in SCHEMES if name not in PRESETS and name != FIRST] + COMPOSED


def run(folder: Path, *names: str) -> list[dict]:
    """Train in two processes; return the rows of each rank."""
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    environment = os.environ | {"PYTHONPATH": str(HERE.parent), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *command, str(HERE / "scheme_ddp_script.py"), str(folder), *names],
        env=environment, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [json.loads((folder / f"rank{rank}.json").read_text()) for rank in (0, 1)]


def assert_trained_together(first: dict, second: dict) -> None:
    assert all(first["equal"] + second["equal"])
    assert max(first["average"] + second["average"]) < 1e-4


def assert_drawn_apart(first: dict, second: dict) -> None:
    """The batches are equal, so what differs was drawn."""
    assert first["loss"] != second["loss"]


def test_a_scheme_in_two_processes(tmp_path: Path) -> None:
    first, second = run(tmp_path, FIRST)
    assert_trained_together(first[FIRST], second[FIRST])
    assert_drawn_apart(first[FIRST], second[FIRST])
    assert first[FIRST]["partner"] != second[FIRST]["partner"]


@pytest.mark.slow
def test_all_others_in_two_processes(tmp_path: Path) -> None:
    first, second = run(tmp_path, *OTHERS)
    for name in OTHERS:
        assert_trained_together(first[name], second[name])
        if name != "label_smoothing":
            assert_drawn_apart(first[name], second[name])


def test_ranks_that_draw_the_same_would_be_seen() -> None:
    row = {"loss": [1.0], "equal": [True, False], "average": [0.0]}
    with pytest.raises(AssertionError):
        assert_drawn_apart(row, row)
    with pytest.raises(AssertionError):
        assert_trained_together(row, row)
