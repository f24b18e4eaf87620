"""What is searched: the settings that a scheme has, each with its range, and how they change a recipe."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from nfm.config.build import build_method
from nfm.config.schema import Config, MethodConfig
from nfm.errors import UsageError
from nfm.method.feature_mixup import NoisyFeatureMixup
from nfm.method.presets import PRESETS
from nfm.method.scheme import mixings_of

TIMES = 3.0  # a level is searched from 0 to this many times the recipe's own
ALPHAS = (0.1, 4.0)  # the paper's tables have .1 to 2
DIGITS = 4  # significant, of proposed numbers: a recipe is to be read

Setting = float | str
Settings = dict[str, Setting]  # noise.add, noise.mult, alpha, sites: one name for one thing


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`, spread evenly or, with `log`, evenly in their logarithm."""

    low: float
    high: float
    log: bool = False

    def tidy(self, value: float) -> float:
        """Return `value` with few digits, within the range.

        >>> Range(0.1, 4).tidy(0.123456789), Range(0.1, 1 / 3).tidy(1 / 3)
        (0.1235, 0.3333)
        """
        return min(max(float(f"{value:.{DIGITS}g}"), self.low), self.high)


@dataclass(frozen=True)
class Choice:
    """A few names, without order."""

    names: tuple[str, ...]


@dataclass(frozen=True)
class Space:
    """The ranges by setting, and where the search begins: the recipe's own settings."""

    ranges: Mapping[str, Range | Choice]
    start: Settings

    def tidy(self, settings: Mapping[str, Any]) -> Settings:
        """Return settings whose numbers have few digits."""
        ranges = self.ranges
        return {
            name: own.tidy(value) if isinstance(own := ranges[name], Range) else value
            for name, value in settings.items()
        }


def find_space(config: MethodConfig, model: nn.Module) -> Space:
    """Return what can be searched of a scheme in `model`; a level or alpha of 0 stays what it is.

    Sites are searched among those the recipe names, or the network's default: the first few, the last few,
    or one alone.
    """
    part = _noisy_part(config)
    ranges: dict[str, Range | Choice] = {}
    start: Settings = {}
    for name in ("add", "mult"):
        if level := getattr(part.noise, name):
            ranges[f"noise.{name}"], start[f"noise.{name}"] = Range(0.0, TIMES * level), level
    if part.alpha:
        low, high = ALPHAS
        ranges["alpha"] = Range(min(low, part.alpha), max(high, part.alpha), log=True)
        start["alpha"] = part.alpha
    sites = list(part.sites_of(model))
    if len(sites) > 1:
        ranges["sites"], start["sites"] = Choice(_sets(sites)), ",".join(sites)
    return Space(ranges, start)


def _noisy_part(config: MethodConfig) -> NoisyFeatureMixup:
    parts = [part for part in mixings_of(build_method(config, seed=0)) if not part.noise.silent]
    if len(parts) != 1:
        noisy = [name for name in PRESETS if not PRESETS[name].noise.silent]
        raise UsageError(
            f"scheme {config.scheme!r}: expected one part with noise, whose levels can be found, got "
            f"{len(parts)}; choose one of {', '.join(noisy)}, noisymix, or give it noise: "
            "--set method.noise.add=0.4"
        )
    return parts[0]


def _sets(sites: list[str]) -> tuple[str, ...]:
    """Return the first few sites, the last few, and each alone, joined by commas.

    >>> _sets(["input", "stage1", "stage2"])
    ('input', 'input,stage1', 'input,stage1,stage2', 'stage1,stage2', 'stage2', 'stage1')
    """
    first = [sites[:count] for count in range(1, len(sites) + 1)]
    last = [sites[count:] for count in range(1, len(sites))]
    return tuple(dict.fromkeys(",".join(names) for names in [*first, *last, *([site] for site in sites)]))


def apply(config: Config, settings: Mapping[str, Setting]) -> Config:
    """Return the recipe with `settings` of its scheme."""
    levels = {
        name.removeprefix("noise."): value for name, value in settings.items() if name.startswith("noise.")
    }
    changes: dict[str, Any] = {"noise": config.method.noise | levels}
    if "alpha" in settings:
        changes["alpha"] = settings["alpha"]
    if "sites" in settings:
        changes["sites"] = tuple(str(settings["sites"]).split(","))
    return dataclasses.replace(config, method=dataclasses.replace(config.method, **changes))
