"""Tiny measured runs on disk: little linear models on coloured noise, made in milliseconds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nfm.data.examples import Examples
from nfm.evaluate import PGD7, Cell, Clean, SaltAndPepper, WhiteNoise, cells, evaluate
from nfm.evaluate.corruptions import Corruption
from nfm.randomness import torch_generator
from nfm.results import append_rows

CLASSES = ("cat", "dog", "owl")
SUITE = [
    Cell(Clean(), 0.0), *cells(WhiteNoise(), [0.1, 0.2, 0.3]), *cells(SaltAndPepper(), [0.02, 0.04, 0.1]),
    *cells(Corruption("brightness"), [1, 2]), *cells(Corruption("contrast"), [1, 2]),
    *cells(PGD7(), [1 / 255, 4 / 255]),
]  # fmt: skip
PATTERNS = torch.rand(3, 3, 8, 8, generator=torch_generator(0))


def examples(n: int = 60) -> Examples:
    """Return noisy copies of three patterns."""
    labels = torch.arange(n) % 3
    grain = torch.rand(n, 3, 8, 8, generator=torch_generator(1)) - 0.5
    pixels = (0.3 * PATTERNS[labels] + 0.35 + 0.6 * grain).clamp(0, 1)
    return Examples((255 * pixels).to(torch.uint8), labels, torch.arange(n) + 100)


class Nearest:
    """The nearest pattern; `blur` moves the patterns, so that the model errs more often."""

    def __init__(self, *, blur: float = 0.0, seed: int = 0) -> None:
        moved = PATTERNS + blur * torch.randn(PATTERNS.shape, generator=torch_generator(seed + 10))
        self.weight = (0.3 * moved + 0.35).flatten(1)

    def __call__(self, x: Tensor) -> Tensor:
        return 4 * (x.flatten(1) @ self.weight.T - self.weight.square().sum(1) / 2)


def measure(
    out: Path, *, scheme: str = "erm", seed: int | None = 0, blur: float = 0.0, protocol: str = "pixel", n: int = 60,
    **other: Any,
) -> Path:  # fmt: skip
    """Measure a model into the folder `out`, as ``nfm evaluate`` does."""
    suite = SUITE if protocol == "pixel" else SUITE[:7]
    tags = {"scheme": scheme, "train_seed": seed, "data": "patterns", "network": "nearest"} | other
    evaluate(
        Nearest(blur=blur, seed=seed or 0), examples(n), suite, protocol=protocol, held_out=examples(90), tags=tags,
        save_to=out,
    )  # fmt: skip
    (out / "about.json").write_text(json.dumps({"classes": CLASSES, "network": "nearest", "scheme": scheme}))
    return out


def make_run(
    home: Path, *, scheme: str = "erm", seed: int = 0, blur: float = 0.0, config: Mapping[str, Any] | None = None,
    **other: Any,
) -> Path:  # fmt: skip
    """Make the folder of a run that was trained and measured."""
    recipe = {"config": {"method": {"scheme": scheme}, "train": {"seed": seed}, **(config or {})}}
    home.mkdir(parents=True)
    (home / "run.json").write_text(json.dumps({"recipe": recipe}))
    epochs = [
        {"kind": "epoch", "epoch": e, "train_loss": 2 / (e + 1), "validation_accuracy": 1 - 0.5 / (e + 1)}
        for e in range(4)
    ]
    append_rows(home / "rows.jsonl", [{"kind": "step", "step": 0, "loss": 2.0}, *epochs])
    measure(home / "evaluation-pixel", scheme=scheme, seed=seed, blur=blur, **other)
    return home
