"""Pickles that ask for more than numbers run nothing."""

import pickle
from pathlib import Path

import numpy as np
import pytest

from nfm.data.pickled import read_pickle
from nfm.errors import DataError


class Runs:
    def __init__(self, function: object, *arguments: object) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return self.call


def payloads(canary: Path) -> dict[str, bytes]:
    import builtins
    import os
    import subprocess

    touch = f"touch {canary}"
    shell = b"cposix\nsystem\n(S'" + touch.encode() + b"'\ntR."
    objects = {
        "os.system": Runs(os.system, touch),
        "popen": Runs(subprocess.Popen, ["touch", str(canary)]),
        "eval": Runs(builtins.eval, f"open({str(canary)!r}, 'w')"),
        "exec": Runs(builtins.exec, f"open({str(canary)!r}, 'w')"),
        "getattr": Runs(builtins.getattr, "text", "format"),
        "open": Runs(builtins.open, str(canary), "w"),
        "numpy.load": Runs(np.load, str(canary)),
        "huge array": Runs(np.ndarray, (10**13,)),
        "object array": np.array([Runs(os.system, touch)], dtype=object),
    }
    hidden = {
        name: pickle.dumps({"data": value, "labels": []}, protocol=2) for name, value in objects.items()
    }
    return {
        **hidden,
        "by hand": shell,
        "not a pickle": b"<html>404</html>",
        "torn": pickle.dumps({"a": 1})[:-4],
    }


@pytest.mark.parametrize("case", sorted(payloads(Path("x"))))
def test_a_hostile_pickle_is_refused_and_runs_nothing(case: str, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    with pytest.raises(DataError, match="batch_1"):
        read_pickle(payloads(canary)[case], "batch_1")
    assert not canary.exists()


def test_the_canary_would_sing(tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    pickle.loads(payloads(canary)["os.system"])
    assert canary.exists()


@pytest.mark.parametrize("protocol", [2, 3, 4])
def test_arrays_lists_and_names_are_read(protocol: int) -> None:
    batch = {"data": np.arange(6, dtype=np.uint8).reshape(2, 3), "labels": [1, 2], "name": "a"}
    found = read_pickle(pickle.dumps(batch, protocol=protocol), "x")
    assert found["labels"] == [1, 2]
    assert (found["data"] == batch["data"]).all()


def test_only_dictionaries_are_read() -> None:
    with pytest.raises(DataError, match="expected a pickled dictionary, got list"):
        read_pickle(pickle.dumps([1]), "x")
