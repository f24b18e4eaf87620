"""Damaged reports and certifications are refused by the name of the file; so are outcomes that belie their row."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from nfm.data.examples import Examples
from nfm.errors import DataError
from nfm.evaluate import Smoothing, WhiteNoise, cells, certify, evaluate, load_report
from nfm.evaluate.certificates import CertificationFolder
from nfm.evaluate.report import Folder
from nfm.randomness import torch_generator

SUITE = cells(WhiteNoise(), [0.1, 0.2])
NAME = "white_noise-0.1.npz"
WEIGHTS = torch.randn(48, 3, generator=torch_generator(0))
Arrays = dict[str, Any]


def linear(x: Tensor) -> Tensor:
    return (x.flatten(1) - 0.5) @ WEIGHTS


def make() -> Examples:
    images = torch.randint(0, 256, (30, 3, 4, 4), generator=torch_generator(1), dtype=torch.uint8)
    return Examples(images, torch.arange(30) % 3, torch.arange(30))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    evaluate(linear, make(), SUITE, save_to=folder)
    return folder


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    shutil.copytree(whole, tmp_path / "report")
    assert load_report(tmp_path / "report").rows
    return tmp_path / "report"


def test_no_flipped_bit_is_a_traceback_or_another_number(folder: Path) -> None:
    file = folder / "outcomes" / NAME
    content, before = file.read_bytes(), load_report(folder).outcomes["white_noise", 0.1].arrays()
    refused = 0
    for place in range(0, len(content), 3):
        flipped = bytearray(content)
        flipped[place] ^= 1 << place % 8
        file.write_bytes(flipped)
        try:
            after = load_report(folder).outcomes["white_noise", 0.1].arrays()
        except DataError:
            refused += 1
        else:  # in what a reader of zip files passes over
            assert all(np.array_equal(after[name], before[name]) for name in before)
    assert refused > 100


def halve(arrays: Arrays) -> Arrays:
    return {name: column[:15] for name, column in arrays.items()}


def halve_one(arrays: Arrays) -> Arrays:
    return arrays | {"nll": arrays["nll"][:15]}


def invert(arrays: Arrays) -> Arrays:
    return arrays | {"correct": ~arrays["correct"]}


def rename(arrays: Arrays) -> Arrays:
    return arrays | {"ids": arrays["ids"] + 1}


def repeat(arrays: Arrays) -> Arrays:
    return arrays | {"ids": 0 * arrays["ids"]}


@pytest.mark.parametrize("change", [halve, halve_one, invert, rename, repeat])
def test_outcomes_that_belie_their_row_are_refused(folder: Path, change: Callable[[Arrays], Arrays]) -> None:
    file = folder / "outcomes" / "white_noise-0.2.npz"
    with np.load(file) as held:
        arrays = dict(held)
    np.savez_compressed(file, **arrays)
    load_report(folder)
    np.savez_compressed(file, **change(arrays))
    with pytest.raises(DataError, match=re.escape(f"{file}: expected")):
        load_report(folder)
    with pytest.raises(DataError, match=re.escape(f"{file}: expected")):
        evaluate(linear, make(), SUITE, save_to=folder)


def test_an_empty_file_is_refused(folder: Path) -> None:
    (folder / "outcomes" / NAME).write_bytes(b"")
    with pytest.raises(DataError, match=NAME):
        load_report(folder)
    (folder / "strips" / NAME).write_bytes(b"")
    with pytest.raises(DataError, match="expected the strip"):
        Folder(folder).read_strip(("white_noise", 0.1))


@pytest.mark.parametrize(
    "line",
    [b'{"a": 1}', b"\xff\xfe", b"[" * 100_000, b"3", {"accuracy": "high"}, {"flags": None}, {"n": 1.5}],
)
def test_rows_that_are_none_are_refused(folder: Path, line: bytes | dict[str, Any]) -> None:
    file = folder / "rows.jsonl"
    first = file.read_bytes().splitlines()[0]
    bad = line if isinstance(line, bytes) else json.dumps(json.loads(first) | line).encode()
    file.write_bytes(first + b"\n" + bad + b"\n")
    with pytest.raises(DataError, match=r"rows\.jsonl, line 2: expected"):
        load_report(folder)


@pytest.mark.parametrize("line", [b'{"a": 1}', b"\xff\xfe", {"radius": "0"}, {"correct": None}])
def test_certificates_that_are_none_are_refused(tmp_path: Path, line: bytes | dict[str, Any]) -> None:
    how = Smoothing(0.1, n=20, n0=5)
    certify(linear, make(), how, limit=2, save_to=tmp_path)
    assert len(CertificationFolder(tmp_path).read().rows) == 2
    file = tmp_path / "rows.jsonl"
    first = file.read_bytes().splitlines()[0]
    bad = line if isinstance(line, bytes) else json.dumps(json.loads(first) | line).encode()
    file.write_bytes(first + b"\n" + bad + b"\n")
    with pytest.raises(DataError, match=r"rows\.jsonl, line 2: expected"):
        certify(linear, make(), how, limit=2, save_to=tmp_path)
