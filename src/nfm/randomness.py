"""Keyed randomness: what is drawn depends on the key alone, never on what was drawn before.

No function here reads or moves the global generators of torch, numpy or Python.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from nfm.errors import UsageError

SEEDS = 2**32

_PASSING = threading.local()
_ZEROS = np.zeros(4, dtype=np.uint64)  # Philox's counter, and its buffer: nothing drawn yet


def check_seed(seed: int) -> int:
    """Return `seed`, a whole number from 0 to 2**32 - 1, or refuse it."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed < SEEDS:
        raise UsageError(f"seed: expected a whole number from 0 to {SEEDS - 1}, got {seed!r}")
    return int(seed)


def fold(*parts: int | str) -> int:
    """Hash `parts` into a key: a whole number from 0 to 2**63 - 1.

    Parts are told apart by type and place, so no two different lists share an encoding.

    >>> fold(0, "weight", 7) == fold(0, "weight", 7)
    True
    >>> fold(0, "weight", 7) == fold(0, "weight", 8) or fold(1, 23) == fold(12, 3)
    False
    """
    coded = "".join(
        [
            f"s{len(part.encode())}:{part}" if isinstance(part, str) else f"i{len(text := str(part))}:{text}"
            for part in parts
        ]
    )
    return int.from_bytes(hashlib.blake2b(coded.encode(), digest_size=8).digest(), "little") >> 1


def torch_generator(key: int, device: torch.device | str = "cpu") -> torch.Generator:
    """Return a fresh torch generator of `key`."""
    generator = torch.Generator(device=device)
    generator.manual_seed(key)
    return generator


def passing_torch_generator(key: int) -> torch.Generator:
    """Return the same as `torch_generator` on the CPU, good until this thread asks for the next."""
    if torch.compiler.is_compiling():
        return torch_generator(key)
    if not hasattr(_PASSING, "torch"):
        _PASSING.torch = torch.Generator()
    generator: torch.Generator = _PASSING.torch
    return generator.manual_seed(key)


def numpy_generator(key: int) -> np.random.Generator:
    """Return a fresh numpy generator (Philox) of `key`."""
    return np.random.Generator(np.random.Philox(key=key))


def passing_generator(key: int) -> np.random.Generator:
    """Return the same as `numpy_generator`, good until this thread asks for the next: made sooner.

    >>> bool(passing_generator(5).random() == numpy_generator(5).random())
    True
    """
    if torch.compiler.is_compiling():  # the compiler would draw first and set the state later
        return numpy_generator(key)
    if not hasattr(_PASSING, "numpy"):
        _PASSING.numpy = numpy_generator(0)
    generator: np.random.Generator = _PASSING.numpy
    generator.bit_generator.state = {
        "bit_generator": "Philox", "buffer": _ZEROS, "buffer_pos": len(_ZEROS), "has_uint32": 0, "uinteger": 0,
        "state": {"counter": _ZEROS, "key": np.array([key, 0], dtype=np.uint64)},
    }  # fmt: skip
    return generator


@contextmanager
def lend_global(key: int, device: torch.device | str = "cpu") -> Iterator[None]:
    """Lend `key` to the global torch generators, for layers that read nothing else (dropout); then give back."""
    lent = [torch.default_generator]
    if torch.device(device).type == "cuda":
        lent.append(torch.cuda.default_generators[torch.device(device).index or 0])
    states = [generator.get_state() for generator in lent]
    try:
        for generator in lent:
            generator.manual_seed(key)
        yield
    finally:
        for generator, state in zip(lent, states, strict=True):
            generator.set_state(state)
