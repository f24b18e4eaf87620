"""Files that want to run code, or are not what they say: refused with code 3, nothing run, nothing written."""

from __future__ import annotations

import io
import json
import os
import pickle
import re
import resource
import struct
import tarfile
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from nfm.cli import main
from nfm.config.initial import read_weights
from nfm.errors import CheckpointError
from running import digits, in_memory, network

tmp_path = in_memory
LIMIT = 512 * 2**20  # bytes of memory that refusing a file may take


class Calls:
    """Something that calls `function(*args)` when it is unpickled."""

    def __init__(self, function: Any, *args: Any) -> None:
        self.call = (function, args)

    def __reduce__(self) -> Any:
        return self.call


def saved(content: Any, **options: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(content, buffer, **options)
    return buffer.getvalue()


def touch(canary: Path) -> Calls:
    return Calls(os.system, f"touch {canary}")


def in_legacy_tar(canary: Path) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name in ("sys_info", "pickle", "storages", "tensors"):
            content = pickle.dumps(touch(canary))
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def zipped(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def scripted(canary: Path) -> bytes:
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.save(torch.jit.script(nn.Linear(2, 2)), buffer)
    return buffer.getvalue()


def safe_header(header: dict[str, Any], data: bytes = b"") -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def object_array(canary: Path) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.array([touch(canary)], dtype=object), allow_pickle=True)
    return buffer.getvalue()


HUGE = {"a": {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 2**42]}}
PAYLOADS: dict[str, Callable[[Path], bytes]] = {
    "system.pt": lambda canary: saved(touch(canary)),
    "system-in-weights.pt": lambda canary: saved({"head.weight": touch(canary)}),
    "system-legacy.pt": lambda canary: saved(touch(canary), _use_new_zipfile_serialization=False),
    "plain-pickle.pkl": lambda canary: pickle.dumps(touch(canary)),
    "protocol-0.pt": lambda canary: pickle.dumps(touch(canary), protocol=0),
    "eval.pt": lambda canary: saved(Calls(eval, f"open({str(canary)!r}, 'w')")),
    "exec.pt": lambda canary: saved(Calls(exec, f"open({str(canary)!r}, 'w')")),
    "open.pt": lambda canary: saved(Calls(open, str(canary), "w")),
    "import.pt": lambda canary: saved(Calls(__import__, "antigravity")),
    "nested-load.pt": lambda canary: saved(Calls(torch.load, str(canary))),
    "hub.pt": lambda canary: saved(Calls(torch.hub.load, str(canary.parent), "net")),
    "getattr.pt": lambda canary: saved(Calls(getattr, Path, "touch")),
    "path-touch.pt": lambda canary: saved(Calls(Path.touch, canary)),
    "legacy.tar": in_legacy_tar,
    "script.pt": scripted,
    "nested-zip.pt": lambda canary: zipped({"archive/data.pkl": saved(touch(canary)), "archive/version": b"3"}),
    "slip.pt": lambda canary: zipped({"../../canary": b"x", "archive/data.pkl": pickle.dumps(touch(canary), 2)}),
    "objects.npy": object_array,
    "whole-network.pt": lambda canary: saved(network(digits())),
    "whole-network-inside.pt": lambda canary: saved({"state_dict": network(digits())}),
    "list.pt": lambda canary: saved([torch.ones(2)]),
    "numbers.pt": lambda canary: saved({"head.weight": 3.0}),
    "numbered.pt": lambda canary: saved({0: torch.ones(2)}),
    "page.pt": lambda canary: b"<!DOCTYPE html><html>404</html>",
    "page.safetensors": lambda canary: b"<!DOCTYPE html><html>404</html>",
    "empty.pt": lambda canary: b"",
    "empty.safetensors": lambda canary: b"",
    "cut.pt": lambda canary: saved({"head.weight": torch.ones(10, 8)})[:-40],
    "pickle.safetensors": lambda canary: pickle.dumps(touch(canary)),
    "huge.safetensors": lambda canary: safe_header(HUGE),
    "huge-header.safetensors": lambda canary: struct.pack("<Q", 2**60) + b"{}",
    "overlap.safetensors": lambda canary: safe_header(
        {name: {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]} for name in "ab"}, b"\0" * 8
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PAYLOADS)
def test_a_hostile_file_is_refused_and_inert(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    canary, file = tmp_path / "canary", tmp_path / name
    file.write_bytes(PAYLOADS[name](canary))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    with pytest.raises(CheckpointError, match=re.escape(str(file))):
        read_weights(file)
    command = [
        "train",
        "--data",
        "digits",
        "--model",
        "mlp",
        "--init-from",
        str(file),
        "--out",
        str(tmp_path / "x"),
    ]
    assert main(command) == 3
    told = capsys.readouterr().err
    assert told.startswith("error: ")
    assert len(told.splitlines()) == 1
    assert not canary.exists()
    assert sorted(tmp_path.iterdir()) == [file]
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before < LIMIT


def test_the_payloads_are_live(tmp_path: Path) -> None:
    """The control: read as a pickle, they run."""
    canary = tmp_path / "canary"
    pickle.loads(PAYLOADS["plain-pickle.pkl"](canary))
    assert canary.exists()


FORBIDDEN = re.compile(
    r"weights_only\s*=\s*False|pickle\.loads?\(|allow_pickle\s*=\s*True|yaml\.load\(|torch\.save\(|\beval\(|\bexec\("
)
AUDITED = {"data/pickled.py"}  # a restricted unpickler


def code_of(file: Path) -> str:
    return "\n".join(line.partition("#")[0] for line in file.read_text().splitlines())


def test_no_source_reads_or_writes_pickles() -> None:
    sources = Path(__file__).parents[2] / "src" / "nfm"
    found = {
        str(file.relative_to(sources)): FORBIDDEN.findall(code_of(file))
        for file in sources.rglob("*.py")
        if FORBIDDEN.search(code_of(file).replace(".eval(", "."))
    }
    assert set(found) <= AUDITED
    assert FORBIDDEN.search("x = torch.load(file, weights_only = False)")  # the control
