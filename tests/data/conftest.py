"""Small data for the tests of the data room, and a machine without data of its own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from nfm.data import Examples


@pytest.fixture(autouse=True)
def bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Point the search path at empty folders; return the cache folder."""
    cache = tmp_path / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.delenv("NFM_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("nfm.data.places.DEBIAN", tmp_path / "no-debian")
    return cache / "nfm"


@pytest.fixture
def images() -> Examples:
    """60 random images of 3x8x8 in 3 equal classes, with ids that are not their places."""
    generator = np.random.default_rng(0)
    return Examples(
        images=torch.from_numpy(generator.integers(0, 256, (60, 3, 8, 8), dtype=np.uint8)),
        labels=torch.arange(60) % 3,
        ids=torch.arange(60) * 7 + 1000,
    )
