"""Rows of evaluations, grouped so that only what may be compared stands side by side."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isfinite
from statistics import fmean, stdev
from typing import Any

from nfm.errors import DataError, UsageError
from nfm.results import Row

Column = tuple[str, float]  # perturbation, level
CLEAN: Column = ("clean", 0.0)
SAME = ("protocol", "data", "n", "ids", "seed")  # must agree within one table: the seed is that of the noise
NUMBERS = ("level", "accuracy", "lo", "hi")
WEAK_ATTACKS, STRONG_ATTACKS = {"fgsm", "pgd", "pgd7"}, {"apgd", "square", "strong"}
FEW_SEEDS = {
    1: "one seed: the interval is that of the examples, not of the training",
    2: "two seeds: too few to know how much trainings differ",
}
NEEDED = ("perturbation", "level", "accuracy", "lo", "hi", *(name for name in SAME if name != "data"))


@dataclass(frozen=True)
class Estimate:
    """An accuracy with its band: Wilson's interval for one seed, one standard deviation over several."""

    mean: float
    lo: float
    hi: float
    std: float | None
    seeds: int


@dataclass(frozen=True)
class Comparison:
    """Schemes measured on the same examples in the same way."""

    about: Mapping[str, Any]
    schemes: tuple[str, ...]
    columns: tuple[Column, ...]
    cells: Mapping[tuple[str, Column], Estimate]
    notes: tuple[str, ...]

    @property
    def title(self) -> str:
        """What all cells share, in one line."""
        data = f"{self.about['data']}, " if self.about["data"] else ""
        return f"{data}{self.about['n']} examples, protocol {self.about['protocol']}"

    @property
    def spread(self) -> str:
        """What the band of a cell shows, in words."""
        seeds = sorted({estimate.seeds for estimate in self.cells.values()})
        several = "-".join(str(count) for count in dict.fromkeys((*seeds, seeds[-1])) if count > 1)
        told = ["95% interval of one model"] if seeds[0] == 1 else []
        return ", ".join(told + ([f"one standard deviation over {several} seeds"] if several else []))

    def levels(self, perturbation: str) -> list[float]:
        """Return the levels of one perturbation, rising; the clean column stands for level 0."""
        levels = {level for name, level in self.columns if name == perturbation}
        return sorted(levels | ({0.0} if CLEAN in self.columns else set()))

    def perturbations(self) -> list[str]:
        """Return the perturbations in the order of the columns, without ``clean``."""
        return list(dict.fromkeys(name for name, _ in self.columns if name != "clean"))


def compare(rows: Iterable[Row]) -> list[Comparison]:
    """Return one comparison for each protocol, data set, set of examples and seed of the noise."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        missing = [name for name in NEEDED if name not in row]
        if missing:
            raise DataError(f"expected rows of an evaluation, got one without {', '.join(missing)}: {row}")
        wrong = [name for name in NUMBERS if not (isinstance(row[name], int | float) and isfinite(row[name]))]
        if wrong:
            raise DataError(
                f"expected numbers for {', '.join(wrong)} of a row, got {[row[n] for n in wrong]}"
            )
        groups.setdefault(tuple(str(row.get(name)) for name in SAME), []).append(row)
    if not groups:
        raise UsageError("expected rows of at least one evaluation, got none")
    return [_comparison({name: group[0].get(name) for name in SAME}, group) for group in groups.values()]


def compare_one(rows: Iterable[Row]) -> Comparison:
    """Return the only comparison of `rows`, or refuse rows that may not stand in one table."""
    found = compare(rows)
    if len(found) > 1:
        differ = [name for name in SAME if len({str(one.about[name]) for one in found}) > 1]
        values = "; ".join(f"{name}: {', '.join(str(one.about[name]) for one in found)}" for name in differ)
        raise UsageError(
            f"expected rows that may be compared, got different {values}; make one table of each"
        )
    return found[0]


def _comparison(about: Mapping[str, Any], rows: list[Row]) -> Comparison:
    measured: dict[tuple[str, Column], dict[Any, Row]] = {}
    for row in rows:
        cell = measured.setdefault((scheme_of(row), _column(row)), {})
        held = cell.setdefault(row.get("train_seed"), row)
        if held["accuracy"] != row["accuracy"]:
            raise DataError(
                f"{scheme_of(row)}, {row['perturbation']} {row['level']:g}: two rows of the same training seed "
                f"({row.get('train_seed')}) disagree: {held['accuracy']} and {row['accuracy']}"
            )
    schemes = tuple(dict.fromkeys(scheme for scheme, _ in measured))
    columns = tuple(dict.fromkeys(column for _, column in measured))
    cells = {key: _estimate(list(by_seed.values())) for key, by_seed in measured.items()}
    return Comparison(about, schemes, columns, cells, tuple(_notes(rows, cells)))


def scheme_of(row: Row) -> str:
    """Return what the row's scheme is called."""
    return str(row.get("scheme") or row.get("model") or "model")


def _column(row: Row) -> Column:
    return CLEAN if row["level"] == 0 else (row["perturbation"], row["level"])


def _estimate(rows: list[Row]) -> Estimate:
    values = [row["accuracy"] for row in rows]
    if len(rows) == 1:
        return Estimate(values[0], rows[0]["lo"], rows[0]["hi"], None, 1)
    mean, std = fmean(values), stdev(values)
    return Estimate(mean, mean - std, mean + std, std, len(rows))


def _notes(rows: list[Row], cells: Mapping[tuple[str, Column], Estimate]) -> Iterable[str]:
    """Yield every flag with the schemes that carry it, and the schemes of a single seed."""
    told: dict[str, dict[str, None]] = {}
    for row in rows:
        source = (row.get("settings") or {}).get("source")
        for flag in [*row.get("flags", ()), *([f"corruptions: {source}"] if source else [])]:
            told.setdefault(flag, {})[scheme_of(row)] = None
    for (scheme, _), estimate in cells.items():
        if estimate.seeds in FEW_SEEDS:
            told.setdefault(FEW_SEEDS[estimate.seeds], {})[scheme] = None
    names = {column[0].partition("(")[0] for _, column in cells}
    if names & WEAK_ATTACKS and not names & STRONG_ATTACKS:
        yield "PGD alone says little of adversarial robustness: measure apgd, square or strong beside it"
    everyone = len({scheme for scheme, _ in cells})
    for flag, schemes in told.items():
        yield flag if len(schemes) == everyone else f"{flag} ({', '.join(schemes)})"
