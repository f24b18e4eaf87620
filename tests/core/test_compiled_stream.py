"""The compiled kernel draws its stream, Threefry and then sfc32, to the bit, on every machine."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import slow_stream
import torch

from nfm.core import compiled
from nfm.core.laws import LAWS as TORCH_LAWS
from nfm.core.noise_plan import Source

needs_kernel = pytest.mark.skipif(
    bool(compiled.problem()), reason=f"no compiled kernel: {compiled.problem()}"
)
KEY = 0x0123456789ABCDEF
ROOT = Path(__file__).parents[2]


def drawn(law: str, examples: int, size: int, *, key: int = KEY, first: int = 0) -> np.ndarray:
    out = torch.empty(examples * size - first)
    return compiled.fill(out, Source(law, key), size=size, first=first).numpy()


def test_the_slow_generator_gives_the_published_answers() -> None:
    """Known answers of Threefry-4x32 with 13 rounds, from the authors' own test vectors."""
    zeros, ones = [0] * 4, [0xFFFFFFFF] * 4
    answers = [[hex(int(word)) for word in slow_stream.threefry(each, each)] for each in (zeros, ones)]
    assert answers[0] == ["0x531c7e4f", "0x39491ee5", "0x2c855a92", "0x3d6abf9a"]
    assert answers[1] == ["0xc4189358", "0x1c9cc83a", "0xd5881c67", "0x6a0a89e0"]
    assert int(slow_stream.threefry(zeros, zeros, rounds=12)[0]) != 0x531C7E4F


def test_the_slow_small_generator_is_that_of_numpy_at_its_size() -> None:
    """NumPy has the generator with words of 64 bits; ours differs by three shifts."""
    theirs = np.random.SFC64(7)
    state = [np.array([word]) for word in theirs.state["state"]["state"]]
    expected = theirs.random_raw(50)
    assert np.array_equal(slow_stream.sfc(state, 50, bits=64)[:, 0], expected)
    state[3] = state[3] + np.uint64(1)
    assert not np.array_equal(slow_stream.sfc(state, 50, bits=64)[:, 0], expected)


@needs_kernel
@pytest.mark.parametrize("law", list(compiled.LAWS))
@pytest.mark.parametrize("size", [1, 2, 3, 5, 64, 1023, 1024, 1025, 3072, 5000])
def test_every_value_is_that_of_the_slow_generator(law: str, size: int) -> None:
    expected = np.concatenate([slow_stream.values(law, KEY, example, size) for example in range(3)])
    assert drawn(law, 3, size).tobytes() == expected.tobytes()
    assert drawn(law, 3, size, key=KEY + 1).tobytes() != expected.tobytes() or size == 1


@needs_kernel
@pytest.mark.parametrize("first", [0, 1, 700, 1024, 2500, 6000])
def test_a_part_is_the_part_of_the_whole(first: int) -> None:
    assert np.array_equal(drawn("gaussian", 3, 2500, first=first), drawn("gaussian", 3, 2500)[first:])


def test_laws_are_those_of_torch() -> None:
    assert set(compiled.LAWS) == set(TORCH_LAWS)


def build(folder: Path, *flags: str) -> Path:
    """Compile the kernel as the package does, with further flags."""
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        pytest.skip("no C compiler here: the kernel was not built anew")
    library = folder / f"kernel{len(list(folder.iterdir()))}.so"
    command = [
        compiler,
        "-std=gnu11",
        "-O3",
        "-shared",
        "-fPIC",
        "-pthread",
        "-ffp-contract=off",
        "-fno-math-errno",
    ]
    command += ["-fno-trapping-math", "-Wall", "-Wextra", "-Werror", "-DNFM_DIGEST=1", *flags]
    subprocess.run([*command, str(compiled.SOURCE), "-o", str(library)], check=True)
    return library


def gaussian_of(library: Path) -> bytes:
    out = np.empty(5000, np.float32)
    loaded = ctypes.CDLL(str(library))
    loaded.nfm_fill(
        out.ctypes.data_as(ctypes.c_void_p), compiled.LAWS["gaussian"], ctypes.c_uint64(KEY), ctypes.c_int64(5000),
        ctypes.c_int64(0), ctypes.c_int64(5000),
    )  # fmt: skip
    return out.tobytes()


def test_other_instructions_and_no_optimisation_give_the_same_bits(tmp_path: Path) -> None:
    """So a wheel built on one machine draws the same on another."""
    expected = slow_stream.values("gaussian", KEY, 0, 5000).tobytes()
    assert gaussian_of(build(tmp_path)) == expected
    assert gaussian_of(build(tmp_path, "-O0")) == expected
    assert (
        gaussian_of(build(tmp_path, "-Dminus_twice_log=other", "-include", str(_other_log(tmp_path))))
        != expected
    )


def _other_log(folder: Path) -> Path:
    """The control: a header that makes one coefficient another."""
    header = folder / "other.h"
    header.write_text(
        "#define minus_twice_log other\n#define __builtin_sqrtf(x) (1.000001f * __builtin_sqrtf(x))\n"
    )
    return header


HOOK = """
import sys, types, pathlib
class Interface:
    def __class_getitem__(cls, item): return cls
names = "hatchling hatchling.builders hatchling.builders.hooks hatchling.builders.hooks.plugin"
for name in (*names.split(), "hatchling.builders.hooks.plugin.interface"):
    sys.modules[name] = types.ModuleType(name)
sys.modules["hatchling.builders.hooks.plugin.interface"].BuildHookInterface = Interface
sys.path.insert(0, sys.argv[1])
import hatch_build
library = pathlib.Path(sys.argv[2])
print(hatch_build._compile(pathlib.Path(sys.argv[1]) / hatch_build.SOURCE, library), library.exists())
"""


@pytest.mark.parametrize("compiler", ["/bin/false", "/no/such/compiler", None])
def test_the_build_goes_on_without_a_compiler(compiler: str | None, tmp_path: Path) -> None:
    if compiler is None and shutil.which("cc") is None:
        pytest.skip("no C compiler here")
    environment = os.environ | {"CC": compiler or "cc"}
    done = subprocess.run(
        [sys.executable, "-c", HOOK, str(ROOT), str(tmp_path / "kernel.so")], env=environment, check=True,
        capture_output=True, text=True,
    )  # fmt: skip
    *problem, built = done.stdout.split()
    assert (bool(problem), built) == ((True, "False") if compiler else (False, "True"))
