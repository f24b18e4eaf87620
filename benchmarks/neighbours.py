"""How quiet the machine is: what other machines on the same host take of its processors' time (Linux tells it).

Ours uses all processors and a reference often one, so what is stolen slows one side alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

STAT = Path("/proc/stat")
STEAL = 7  # proc(5): user, nice, system, idle, iowait, irq, softirq, steal; guests are counted in user
TOLERATED = 0.02  # of the processors' time: as much as the narrowest limits leave


class Clock(NamedTuple):
    """Ticks of all processors since the start of the machine: those that were stolen, and all."""

    stolen: int
    all: int

    @classmethod
    def read(cls) -> Clock | None:
        """Read it; None where the system does not tell."""
        if not STAT.exists():
            return None
        ticks = [int(count) for count in STAT.read_text(encoding="ascii").split("\n", 1)[0].split()[1:]]
        return cls(ticks[STEAL], sum(ticks[: STEAL + 1]))


def stolen_since(before: Clock | None) -> float | None:
    """Return the share of the processors' time that others took since `before`; None where it is not told."""
    now = Clock.read()
    if before is None or now is None:
        return None
    return (now.stolen - before.stolen) / max(1, now.all - before.all)


def disturbed_since(before: Clock | None) -> bool:
    """Tell whether others took so much since `before` that what was measured does not count."""
    return (stolen_since(before) or 0.0) > TOLERATED
