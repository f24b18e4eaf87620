"""What a study says: one table or figure of the paper, its arms, its two scales, and the published numbers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from nfm.errors import UsageError, did_you_mean

ScaleName = Literal["small", "full"]
SCALES: tuple[ScaleName, ...] = get_args(ScaleName)
FigureName = Literal[
    "curves", "attacks", "corruptions", "training", "boundaries", "losses", "features", "dots"
]


@dataclass(frozen=True)
class Measure:
    """What is measured of a trained network: a suite, under a protocol, on `images` of the test part (0: all)."""

    suite: str
    protocol: str = "pixel"
    images: int = 0

    @property
    def key(self) -> str:
        """What names it in rows, as in ``cifar/authors/10000``."""
        return f"{self.suite}/{self.protocol}/{self.images or 'all'}"


@dataclass(frozen=True)
class Scale:
    """One size of a study. `run` is what all arms share, as a recipe of `nfm train` says it.

    `watch` test images are measured after each epoch (for error curves; nothing is chosen by them). With
    `new_data` each seed draws a data set of its own, too. `together` keeps the rows of all runs in one file, for
    hundreds of tiny ones. `needs` tells what to put where.
    """

    time: str = ""
    seeds: tuple[int, ...] = ()
    run: dict[str, Any] = field(default_factory=dict)
    measures: tuple[Measure, ...] = ()
    watch: int = 0
    new_data: bool = False
    together: str = ""
    needs: str = ""


@dataclass(frozen=True)
class Arm:
    """One row of a table: a scheme with its settings, and what the paper published of it, in %.

    `method` and `change` are laid over the scale's `run`, then `small` at that scale alone. `seeds` is the most
    seeds at the small scale (0: all). `published` stands in the order of the table's columns; `errors` tells
    what is known to be wrong with it, by the number of the column counted from 0, or ``row``. Each of `settings` is
    laid over the arm to make another one, `of` it, among which one may be chosen by validation. `extends` names the
    arm that it adds something to.
    """

    name: str
    scheme: str
    label: str = ""
    method: dict[str, Any] = field(default_factory=dict)
    change: dict[str, Any] = field(default_factory=dict)
    small: dict[str, Any] = field(default_factory=dict)
    seeds: int = 0
    scales: tuple[ScaleName, ...] = SCALES
    published: tuple[float, ...] = ()
    errors: dict[str, str] = field(default_factory=dict)
    settings: tuple[dict[str, Any], ...] = ()
    of: str = ""
    extends: str = ""
    note: str = ""

    @property
    def title(self) -> str:
        """What tables call it."""
        return self.label or self.name


@dataclass(frozen=True)
class Take:
    """Arms of another study: the same runs, so they are trained once."""

    study: str
    arms: tuple[str, ...]


@dataclass(frozen=True)
class Question:
    """What two arms answer together: how far is `arm` ahead of `against`?"""

    asks: str
    arm: str
    against: str


@dataclass(frozen=True)
class Line:
    """An arm at a scale, with the scale of the study it comes from."""

    arm: Arm
    scale: Scale
    name: ScaleName

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds it is trained with."""
        most = self.arm.seeds if self.name == "small" else 0
        return self.scale.seeds[: most or None]


@dataclass(frozen=True)
class Study:
    """One table or figure.

    `tables` are the suites that are shown; `figures` what is drawn, of the arms `drawn` (none: of all). Each of
    `champions` is held against all other arms; each of `questions` sets one arm against another. Beside accuracies,
    calibration errors are told, or not.
    """

    id: str
    title: str
    source: str
    head: str
    small: tuple[Line, ...]
    full: tuple[Line, ...]
    scales: dict[str, Scale]
    tables: tuple[str, ...] = ()
    figures: tuple[FigureName, ...] = ()
    drawn: tuple[str, ...] = ()
    champions: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    questions: tuple[Question, ...] = ()
    calibration: bool = True

    def lines(self, scale: str) -> tuple[Line, ...]:
        """Return the arms at a scale, in order."""
        if scale not in SCALES:
            raise UsageError(
                f"--scale: expected one of {', '.join(SCALES)}, got {scale!r}{did_you_mean(scale, SCALES)}"
            )
        return self.small if scale == "small" else self.full
