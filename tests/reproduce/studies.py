"""A tiny study that trains in seconds, and where its rows go."""

from __future__ import annotations

from pathlib import Path

from nfm.reproduce.execution import Places

TINY = """
# A tiny study.
# source: none
title = "Tiny"
source = "nowhere"
tables = ["cifar"]
figures = ["training"]

[small]
time = "seconds"
seeds = [0, 1]
watch = 20
[small.run.data]
name = "digits"
subset = 48
validation = 0
[small.run.model]
name = "mlp"
options = { units = 8 }
[small.run.train]
epochs = 2
batch_size = 16
[[small.measures]]
suite = "cifar"
protocol = "pixel"
images = 40

[full]
seeds = [0]
[full.run.data]
name = "digits"
[[full.measures]]
suite = "cifar"

[[arms]]
name = "erm"
label = "Baseline"
scheme = "erm"
published = [90.0, 80.0, 70.0, 60.0, 50.0, 40.0, 30.0]
errors = { 2 = "a slip" }

[[arms]]
name = "nfm"
scheme = "nfm"
seeds = 1
small = { train = { epochs = 1 } }
"""


def write_tiny(folder: Path, text: str = TINY, name: str = "tiny") -> Path:
    path = folder / f"{name}.toml"
    path.write_text(text)
    return path


def places_in(folder: Path) -> Places:
    return Places(folder / "claims", folder / "runs", folder / "docs", device="cpu")
