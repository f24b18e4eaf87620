"""A run keeps its kernel: it is written down, and a resume with another is refused by name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nfm.core.compiled import problem
from nfm.core.kernel import KERNELS, STREAMS, use_kernel
from nfm.errors import ConfigError
from nfm.method.presets import preset
from nfm.train.folder import IDENTITY, RunFolder
from running import assert_different_result, train


def opened(path: Path, kernel: str, *, resume: bool = False) -> None:
    folder = RunFolder(path)
    try:
        folder.open({"kernel": kernel, "seed": 1}, resume=resume, overwrite=False)
    finally:
        folder.close()


def test_another_kernel_is_refused_with_the_way_on(tmp_path: Path) -> None:
    opened(tmp_path / "run", "torch")
    with pytest.raises(ConfigError, match=r"(?s)kernel: was 'torch', now 'c'.*NFM_KERNEL=torch goes on"):
        opened(tmp_path / "run", "c", resume=True)
    opened(tmp_path / "run", "torch", resume=True)


def test_a_run_writes_its_kernel_down_and_goes_on_with_no_other(tmp_path: Path) -> None:
    if problem():
        pytest.skip(f"no compiled kernel here: {problem()}")
    for name in KERNELS:
        with use_kernel(name):
            train(tmp_path / name, epochs=1, method=preset("nfm"))
        identity = json.loads((tmp_path / name / IDENTITY).read_text())
        assert (identity["kernel"], identity["stream"]) == (name, STREAMS[name])
    assert_different_result(tmp_path / "c", tmp_path / "torch")
    with (
        use_kernel("c"),
        pytest.raises(ConfigError, match="NFM_KERNEL=torch goes on with the run's own kernel"),
    ):
        train(tmp_path / "torch", epochs=1, method=preset("nfm"), resume=True)


def test_a_run_of_another_stream_is_not_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after an update that draws other values with the same kernel."""
    with use_kernel("torch"):
        train(tmp_path / "run", epochs=1, method=preset("nfm"))
        train(tmp_path / "run", epochs=1, method=preset("nfm"), resume=True)
        monkeypatch.setitem(STREAMS, "torch", "another one")
        with pytest.raises(
            ConfigError,
            match="stream: was 'SFC64 a block of 196,608 elements at most, small features whole', now 'another one'",
        ):
            train(tmp_path / "run", epochs=1, method=preset("nfm"), resume=True)
