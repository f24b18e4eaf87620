"""Jobs: one training run each, known by its configuration, so that studies share runs and rows outlive folders."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from nfm.config.read import build_table
from nfm.config.schema import Config
from nfm.data.places import search_path
from nfm.errors import ConfigError, DataError, UsageError, did_you_mean
from nfm.randomness import check_seed
from nfm.reproduce.reading import overlaid
from nfm.reproduce.study import Line, Measure, Study
from nfm.results import Row

# Where data lies and how often it is saved changes no result.
IRRELEVANT = {"data": ("root", "download"), "train": ("workers", "checkpoint_seconds", "log_every")}


@dataclass(frozen=True)
class Job:
    """One arm with one seed, and what must be measured of it."""

    line: Line
    seed: int
    config: Config

    @property
    def measures(self) -> tuple[Measure, ...]:
        """What is measured."""
        return self.line.scale.measures

    @property
    def name(self) -> str:
        """The name of its folder and of its file of rows: what it is, and a hash of all its settings."""
        config = self.config
        words = (config.data.name, config.model.name, config.method.scheme, f"seed{self.seed}", self.key)
        return "-".join(re.sub(r"[^\w.]+", "_", word) for word in words)

    @property
    def key(self) -> str:
        """A hash of what was chosen."""
        text = json.dumps({**self.chosen, "watch": self.line.scale.watch}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:10]

    @property
    def chosen(self) -> Row:
        """The settings that are not the default, by dotted key, but for those that change no result."""
        told = dataclasses.asdict(self.config)
        return {
            f"{part}.{name}": value
            for part, default in _defaults().items()
            for name, value in told[part].items()
            if value != default[name] and name not in IRRELEVANT.get(part, ())
        }


@functools.cache
def _defaults() -> Row:
    return dataclasses.asdict(Config())


def jobs_of(
    study: Study, scale: str, *, seeds: Collection[int] | None = None, arms: Collection[str] | None = None
) -> list[Job]:
    """Return the jobs of a study: all arms of the first seed, then all of the next.

    An arm asked for by name has every seed asked for, others those of their own and such as are new to all.
    """
    lines = study.lines(scale)
    _check_arms(study, lines, arms)
    wanted = [(line, config_of(line)) for line in lines if arms is None or line.arm.name in arms]
    if seeds is None:
        order = list(dict.fromkeys(seed for line, _ in wanted for seed in line.seeds))
        return [
            make_job(line, config, seed) for seed in order for line, config in wanted if seed in line.seeds
        ]
    return [
        make_job(line, config, seed)
        for seed in dict.fromkeys(seeds)
        for line, config in wanted
        if arms is not None or seed in line.seeds or seed not in line.scale.seeds
    ]


def _check_arms(study: Study, lines: Sequence[Line], arms: Collection[str] | None) -> None:
    known = [line.arm.name for line in lines]
    for name in arms or ():
        if name not in known:
            raise UsageError(
                f"--arms: no arm {name!r} in {study.id}{_elsewhere(study, name)}; it has: {', '.join(known)}"
                f"{_nearest(name, known)}"
            )


def _elsewhere(study: Study, name: str) -> str:
    """Return where an arm that is not at one scale is: at the other."""
    found = [line.name for line in (*study.small, *study.full) if line.arm.name == name]
    return f" at this scale (it is run at --scale {found[0]})" if found else ""


def _nearest(name: str, known: Sequence[str]) -> str:
    """Return the arms of that name among those of other studies (``study:arm``), or the nearest name."""
    taken = [other for other in known if other.partition(":")[2] == name]
    return f" (did you mean {' or '.join(map(repr, taken))}?)" if taken else did_you_mean(name, known)


def config_of(line: Line) -> Config:
    """Return the settings of an arm, but for its seed."""
    arm = line.arm
    table = overlaid(line.scale.run, overlaid({"method": {"scheme": arm.scheme, **arm.method}}, arm.change))
    if line.name == "small":
        table = overlaid(table, arm.small)
    errors: list[str] = []
    config = build_table(Config, table, "", errors)
    if config is None:
        raise ConfigError(f"arm {arm.name}: " + "; ".join(errors))
    return config


def make_job(line: Line, config: Config, seed: int) -> Job:
    """Return the job of an arm and a seed."""
    data = dataclasses.replace(config.data, seed=check_seed(seed)) if line.scale.new_data else config.data
    seeded = dataclasses.replace(config, data=data, train=dataclasses.replace(config.train, seed=seed))
    return Job(line, seed, seeded)


def placed(job: Job, *, root: str, download: bool) -> Config:
    """Return the settings of `job` with where data is looked for; a file named npz:NAME is found there, too."""
    data = dataclasses.replace(job.config.data, root=root, download=download)
    kind, _, name = data.name.partition(":")
    if kind == "npz" and not Path(name).is_file():
        data = dataclasses.replace(data, name=f"npz:{_find(name, root, job.line.scale.needs)}")
    return dataclasses.replace(job.config, data=data)


def _find(name: str, root: str, needs: str) -> Path:
    places = search_path(root or None)
    found = next((place / name for place in places if (place / name).is_file()), None)
    if found is None:
        looked = ", ".join(str(place) for place in places)
        told = f"; it needs: {needs}" if needs else ""
        raise DataError(
            f"{name}: not in {looked}; put it there, or say where with --data-root or NFM_DATA{told}"
        )
    return found
