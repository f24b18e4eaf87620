"""``nfm doctor``: what is installed, which kernel is in use and why, and the traps of this machine."""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator

OPTIONAL = (
    "rich", "safetensors", "PIL", "sklearn", "scipy", "matplotlib", "timm", "torchvision", "transformers",
    "tensorboard",
)  # fmt: skip
# oneDNN takes bf16 instructions that some virtual machines announce and do not have.
BF16_TRIAL = """
import torch
layer = torch.nn.Conv2d(16, 16, 3, padding=1).bfloat16()
layer(torch.zeros(8, 16, 16, 16, dtype=torch.bfloat16)).sum().backward()
"""
BF16_REMEDY = {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_FP16"}
SECONDS = 60  # for a trial in a process of its own

Line = tuple[str, str]


def add_arguments(options: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    options.add_argument("--quick", action="store_true", help="leave out what needs a process of its own")


def run(given: argparse.Namespace) -> None:
    """Print the table."""
    from nfm.cli.list_verb import columns

    lines = [*_versions(), *_devices(), *_kernels(), *_traps(quick=given.quick), *_optional()]
    print(columns(lines))


def _versions() -> Iterator[Line]:
    from importlib.metadata import version

    import numpy
    import torch

    yield "nfm", version("noisy-feature-mixup")
    yield "python", f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    yield "torch", f"{torch.__version__}, {torch.backends.cpu.get_cpu_capability()}"
    yield "numpy", numpy.__version__


def _devices() -> Iterator[Line]:
    import torch

    count = torch.cuda.device_count()
    names = ", ".join(torch.cuda.get_device_name(index) for index in range(count))
    yield "cuda", names or "none"
    yield "mps", "present" if torch.backends.mps.is_available() else "none"
    yield "threads", f"{torch.get_num_threads()} of torch, {os.cpu_count()} processors"


def _kernels() -> Iterator[Line]:
    """Yield the kernel in use and why it is not the other; a bad NFM_KERNEL is told, not raised."""
    from nfm.core.compiled import problem
    from nfm.core.kernel import VARIABLE, kernel_in_use
    from nfm.errors import NFMError

    asked = os.environ.get(VARIABLE)
    try:
        name = kernel_in_use()
    except NFMError as error:
        yield "kernel", f"none: {error}"
        return
    why = f"{VARIABLE}={asked}" if asked else problem() or "built and loaded"
    yield "kernel", f"{name} ({why})"
    if name == "torch" and not problem():
        yield "", "the compiled kernel is there, and not in use"


def _traps(*, quick: bool) -> Iterator[Line]:
    if not quick:
        yield "bf16", _bf16()
    free = shutil.disk_usage(".")
    yield "disk", f"{free.free / 1e9:.1f} GB free of {free.total / 1e9:.1f} GB here"


def _bf16() -> str:
    trouble = _trial(BF16_TRIAL, {})
    if not trouble:
        return "a convolution works"
    if not _trial(BF16_TRIAL, BF16_REMEDY):
        remedy = " ".join(f"{name}={value}" for name, value in BF16_REMEDY.items())
        return f"a convolution ends with {trouble}; {remedy} avoids it"
    return f"a convolution ends with {trouble}: use float32"


def _trial(code: str, environment: dict[str, str]) -> str:
    """Run `code` in a process of its own; return how it failed, or nothing."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", code], env=os.environ | environment, capture_output=True, text=True,
            timeout=SECONDS, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"no answer in {SECONDS} s"
    if done.returncode < 0:
        return signal.strsignal(-done.returncode) or f"signal {-done.returncode}"
    return (
        (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1] if done.returncode else ""
    )


def _optional() -> Iterator[Line]:
    from importlib.util import find_spec

    present = [name for name in OPTIONAL if find_spec(name)]
    yield "optional", f"present: {', '.join(present) or 'none'}"
    if missing := [name for name in OPTIONAL if name not in present]:
        yield "", f"missing: {', '.join(missing)}"
