"""What a certification leaves: one row an example, a curve of certified accuracy, and a folder that can go on."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from types import NoneType

from nfm.errors import UsageError
from nfm.evaluate.journal import Journal
from nfm.evaluate.metrics import wilson_interval
from nfm.results import Row

CERTIFIED = "certified.json"
KEYS = ("model", "ids", "seed", "sigma", "n", "n0", "alpha")  # of every identity
TYPES = {
    "id": (int,), "label": (int,), "correct": (bool,), "abstained": (bool,), "radius": (int, float, NoneType),
    "sigma": (int, float), "n": (int,), "flags": (list,),
}  # fmt: skip


@dataclass(frozen=True)
class Certification:
    """Certificates, one row an example; `identity` is what they are of."""

    identity: Row
    rows: list[Row]

    def curve(self, radii: Sequence[float] | None = None) -> list[Row]:
        """Return the certified accuracy at `radii`, by default at every radius where it changes, and at 0."""
        return certified_accuracy(self.rows, radii)

    def summary(self) -> Row:
        """Return accuracy and abstentions of the smoothed classifier, and the mean radius: 0 where it is not right."""
        return {
            "n": len(self.rows),
            "accuracy": fmean(row["correct"] for row in self.rows),
            "abstained": fmean(row["abstained"] for row in self.rows),
            "mean_radius": fmean(row["radius"] if row["correct"] else 0.0 for row in self.rows),
        }


def certified_accuracy(rows: Sequence[Row], radii: Sequence[float] | None = None) -> list[Row]:
    """Return one row a radius: the share of `rows` that is right and certified beyond it, with Wilson's interval.

    The share is of examples; that a single certificate is wrong has a probability of at most its alpha beside.
    """
    if not rows:
        raise UsageError("expected at least one certified example, got none")
    check_radii(radii)
    reached = sorted(row["radius"] for row in rows if row["correct"])
    shown = sorted({0.0, *reached}) if radii is None else radii
    kept = ("scheme", "train_seed", "data", "network", "model", "sigma", "n", "n0", "alpha", "unit")
    about = {key: rows[0][key] for key in kept if key in rows[0]}
    about["draws"] = about.pop("n")
    return [about | _share(radius, reached, len(rows)) for radius in shown]


def check_radii(radii: Sequence[float] | None) -> None:
    """Refuse radii that are no lengths."""
    for radius in radii or ():
        if not 0 <= radius < math.inf:
            raise UsageError(f"radii: expected lengths, 0 or greater, got {radius!r}")


def _share(radius: float, reached: Sequence[float], n: int) -> Row:
    hits = sum(one > radius for one in reached)
    low, high = wilson_interval(hits, n)
    return {
        "kind": "certified_accuracy", "radius": radius, "accuracy": hits / n, "lo": low, "hi": high, "n": n,
    }  # fmt: skip


def round_radii(rows: Iterable[Row], *, steps: int = 6) -> list[float]:
    """Return 0 and up to `steps` round radii that span what `rows` reach."""
    most = max((row["radius"] for row in rows if row["correct"]), default=0.0)
    if most == 0:
        return [0.0]
    rough = most / steps
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * unit for factor in (1, 2, 2.5, 5, 10) if factor * unit >= rough * (1 - 1e-9))
    return [round(place * step, 12) for place in range(math.ceil(most / step))]


@dataclass(frozen=True)
class CertificationFolder:
    """Certificates on disk, written example by example."""

    path: Path

    @property
    def journal(self) -> Journal:
        """The rows on disk, and what they are of."""
        return Journal(self.path, CERTIFIED, "certification", KEYS, TYPES)

    def open(self, identity: Row) -> list[Row]:
        """Return the rows of examples that are certified already; make the folder where there is none."""
        self.journal.check_place()
        self.journal.start(identity)
        return list(self.journal.rows())

    def clear(self) -> None:
        """Remove the certification that is there, and nothing else; refuse a folder of something else."""
        self.journal.clear()

    def read(self) -> Certification:
        """Return all that was certified."""
        return Certification(self.journal.identity(), list(self.journal.rows()))
