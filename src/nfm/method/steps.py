"""A seed and a count of steps: all that a scheme remembers between two calls."""

from __future__ import annotations

import threading
from typing import Any

import torch.distributed as dist

from nfm.randomness import check_seed, fold

_LOCK = "_lock"
_DISTRIBUTED = dist.is_available()  # a matter of how torch was built


class Stepped:
    """What every scheme has: each draw is keyed by (seed, step, rank, purpose) and depends on nothing else."""

    def __init__(self, seed: int) -> None:
        self.seed = check_seed(seed)
        self.step = 0
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != _LOCK}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _lock=threading.Lock())

    def claim(self) -> int:
        """Take the next step: no two calls get the same."""
        with self._lock:
            self.step += 1
            return self.step - 1

    def key(self, step: int, *purpose: int | str) -> int:
        """Return the key of `step` in this process for a purpose."""
        return fold(self.seed, step, rank(), *purpose)

    def state_dict(self) -> dict[str, int]:
        """Return what a resumed run needs: the seed and the next step."""
        return {"seed": self.seed, "step": self.step}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go on from a state of `state_dict`."""
        self.seed, self.step = check_seed(state["seed"]), int(state["step"])


def rank() -> int:
    """Return the number of this process among those that train together."""
    return dist.get_rank() if _DISTRIBUTED and dist.is_initialized() else 0
