"""Build hook: compile ``src/nfm/core/kernel.c`` where there is a C compiler; without one, install without it.

``CC`` names the compiler (default ``cc``). nfm then uses PyTorch alone; ``nfm doctor`` tells which is in use.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCE = Path("src/nfm/core/kernel.c")
LIBRARY = Path("src/nfm/core/_kernel.so")
# No -march=native and no -ffast-math: a wheel runs on other machines, and gives the same bits on all of them.
FLAGS = ["-std=gnu11", "-O3", "-shared", "-fPIC", "-pthread", "-fvisibility=hidden"]
FLAGS += ["-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"]
VECTORS = (["-DNFM_CLONES"], [])  # vectors chosen when it is loaded, or else those of every such machine


class KernelHook(BuildHookInterface[Any]):
    """Put the compiled kernel into the wheel, or beside its source for an editable install."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile; on success the wheel is for this platform, and for every Python 3."""
        root = Path(self.root)
        (root / LIBRARY).unlink(missing_ok=True)
        problem = _compile(root / SOURCE, root / LIBRARY)
        if problem:
            self.app.display_warning(
                f"nfm: the compiled kernel was not built, PyTorch alone is used: {problem}"
            )
            return
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
        build_data["artifacts"].append(str(LIBRARY))


def _compile(source: Path, library: Path) -> str:
    """Compile `source` to `library`; return what went wrong, or nothing."""
    if sys.platform == "win32":
        return "no POSIX threads"
    digest = int.from_bytes(hashlib.sha256(source.read_bytes()).digest()[:8], "little")
    compiler, problem = shlex.split(os.environ.get("CC", "cc")), ""
    for vectors in VECTORS:
        command = [*compiler, *FLAGS, *vectors, f"-DNFM_DIGEST={digest}ull", str(source), "-o", str(library)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except OSError as error:
            return f"{compiler[0]}: {error.strerror}"
        if done.returncode == 0:
            return ""
        library.unlink(missing_ok=True)
        problem = done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"{compiler[0]} failed"
    return problem
