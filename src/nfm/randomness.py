"""Keyed randomness: what is drawn depends on the key alone, never on what was drawn before.

No function here reads or moves the global generators of torch, numpy or Python.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from nfm.errors import UsageError

SEEDS = 2**32


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
    digest = hashlib.blake2b(digest_size=8)
    for part in parts:
        text = str(part).encode()
        digest.update(b"%c%d:" % (b"s" if isinstance(part, str) else b"i", len(text)) + text)
    return int.from_bytes(digest.digest(), "little") >> 1


def torch_generator(key: int, device: torch.device | str = "cpu") -> torch.Generator:
    """Return a fresh torch generator of `key`."""
    generator = torch.Generator(device=device)
    generator.manual_seed(key)
    return generator


def numpy_generator(key: int) -> np.random.Generator:
    """Return a fresh numpy generator (Philox) of `key`."""
    return np.random.Generator(np.random.Philox(key=key))


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
