"""Suites: which cells (perturbation, level) are measured. The named ones are the paper's columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from nfm.errors import UsageError
from nfm.evaluate.corruptions import AUTHORS, CORRUPTIONS, SEVERITIES, STANDARD, Corruption
from nfm.evaluate.noise import Clean, SaltAndPepper, WhiteNoise
from nfm.evaluate.perturbation import Change
from nfm.registry import Registry


@dataclass(frozen=True)
class Cell:
    """One column of a table: a perturbation or an attack, at a level."""

    perturbation: Change
    level: float

    @property
    def key(self) -> tuple[str, float]:
        """What names the cell in rows and files."""
        return self.perturbation.label, self.level

    @property
    def label(self) -> str:
        """The perturbation and its level, as in ``white_noise 0.1``."""
        return f"{self.perturbation.label} {self.level:g}"


Suite = Sequence[Cell]


def cells(perturbation: Change, levels: Iterable[float]) -> list[Cell]:
    """Return one cell a level."""
    return [Cell(perturbation, perturbation.check_level(level)) for level in levels]


def noise_suite(white: Iterable[float], salt_and_pepper: Iterable[float]) -> list[Cell]:
    """Return the clean cell, white noise and salt and pepper at the given levels."""
    return [Cell(Clean(), 0.0), *cells(WhiteNoise(), white), *cells(SaltAndPepper(), salt_and_pepper)]


def corruption_suite(families: Iterable[str]) -> list[Cell]:
    """Return the clean cell and generated corruptions at five severities."""
    corrupted = [cells(Corruption(family), SEVERITIES) for family in families]
    return [Cell(Clean(), 0.0), *(cell for part in corrupted for cell in part)]


CURVE = (0, 0.02, 0.04, 0.06, 0.08, 0.1, 0.12, 0.15, 0.18, 0.2, 0.25, 0.3, 0.35)  # the paper's figures

SUITES: Registry[list[Cell]] = Registry("suite")
SUITES.add(
    "cifar", noise_suite((0.1, 0.2, 0.3), (0.02, 0.04, 0.1))
)  # the paper's CIFAR-10 and CIFAR-100 tables
SUITES.add("vit", noise_suite((0.1, 0.2, 0.3), (0.08, 0.12, 0.2)))  # the paper's vision transformer table
SUITES.add("imagenet", noise_suite((0.1, 0.25, 0.5), (0.06, 0.1, 0.15)))  # the paper's ImageNet table
SUITES.add("curves", noise_suite(CURVE, CURVE))
SUITES.add("corruptions-15", corruption_suite(STANDARD))
SUITES.add("corruptions-19", corruption_suite(CORRUPTIONS))
SUITES.add("corruptions-paper6", corruption_suite(AUTHORS))  # the paper's six of nineteen


def choose_suite(suite: str | Suite) -> list[Cell]:
    """Return the cells of a suite, each once; a name is looked up."""
    chosen = list(dict.fromkeys(SUITES[suite] if isinstance(suite, str) else suite))
    if not chosen:
        raise UsageError("expected a suite with at least one cell (perturbation, level), got an empty one")
    return chosen
