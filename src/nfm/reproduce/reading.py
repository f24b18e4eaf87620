"""Read a study from its TOML: checked, all errors at once, with the arms and scales it takes from others."""

from __future__ import annotations

import dataclasses
import functools
import tomllib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nfm.config.read import build_table
from nfm.config.recipes import head_of, studies_folder
from nfm.errors import ConfigError, UsageError, did_you_mean
from nfm.reproduce.checking import wrong_arm, wrong_scale
from nfm.reproduce.study import (
    SCALES,
    Arm,
    FigureName,
    Line,
    Measure,
    Question,
    Scale,
    ScaleName,
    Study,
    Take,
)

_being_read: ContextVar[tuple[Path, ...]] = ContextVar(
    "studies being read, each for the one before", default=()
)


@dataclass(frozen=True)
class Page:
    """The plain values of a study's file; `base` is the study whose scales it begins with."""

    title: str = ""
    source: str = ""
    base: str = ""
    tables: tuple[str, ...] = ()
    figures: tuple[FigureName, ...] = ()
    drawn: tuple[str, ...] = ()
    champions: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    calibration: bool = True
    small: dict[str, Any] = field(default_factory=dict)
    full: dict[str, Any] = field(default_factory=dict)


def study_names() -> dict[str, Path]:
    """Return the studies by ID."""
    return {path.stem: path for path in sorted(studies_folder().glob("*.toml"))}


def find_study(name: str, near: Path = Path()) -> Study:
    """Return the study called `name`: an ID, or the path of a file of one's own, seen from the folder `near`."""
    if name.endswith(".toml") and (near / name).is_file():
        return read_study(near / name)
    known = study_names()
    if name.endswith(".toml"):
        raise UsageError(
            f"no study {name!r}: there is no such file in {near.resolve()}; IDs: {', '.join(known)}"
        )
    if name not in known:
        raise UsageError(f"no study {name!r}; there are: {', '.join(known)}{did_you_mean(name, known)}")
    return read_study(known[name])


def study_to_do(name: str) -> Study:
    """Return the study called `name`, whose claim is to be written: refuse a file with the name of another's."""
    study, known = find_study(name), study_names()
    if name not in known and study.id in known and Path(name).resolve() != known[study.id].resolve():
        raise UsageError(
            f"{name}: {study.id!r} is the ID of a study of the paper, whose claim would be written over; give the "
            "file another name"
        )
    return study


def read_study(path: Path) -> Study:
    """Return the study that a file describes."""
    chain = (*_being_read.get(), path.resolve())
    if chain[-1] in chain[:-1]:
        told = " -> ".join(one.stem for one in chain[chain.index(chain[-1]) :])
        raise ConfigError(f"{path}: a study builds upon itself: {told}; change base or [[take]] of one")
    before = _being_read.set(chain)
    try:
        return _parse(path, path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the study {path}: {error}") from None
    finally:
        _being_read.reset(before)


@functools.lru_cache(maxsize=64)
def _parse(path: Path, text: str) -> Study:
    """Return the study in `text`, read once: others may take arms of it."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: expected TOML, got {error}") from None
    errors: list[str] = []
    arms = _entries(Arm, table.pop("arms", []), "arms", errors)
    taken = _entries(Take, table.pop("take", []), "take", errors)
    questions = _entries(Question, table.pop("questions", []), "questions", errors)
    page = build_table(Page, table, "", errors)
    if page is None:
        raise _wrong(path, errors)
    scales: dict[str, Scale] = {name: _scale(name, page, path.parent, errors) for name in SCALES}
    if not errors:
        errors += [
            told for place, arm in enumerate(arms) for told in wrong_arm(arm, f"arms[{place}]", scales)
        ]
    if errors:
        raise _wrong(path, errors)
    lines = {name: (*_taken(taken, name, path.parent), *_own(arms, scales[name], name)) for name in SCALES}
    _check_names(path, lines)
    for place, arm in enumerate(arms):
        _check_arms(path, f"arms[{place}].extends", [arm.extends] if arm.extends else [], lines)
    for place, question in enumerate(questions):
        _check_arms(path, f"questions[{place}]", (question.arm, question.against), lines)
    return Study(
        path.stem, page.title, page.source, head_of(path), lines["small"], lines["full"], scales,
        _shown(path, page, lines), page.figures, _arms(path, page, "drawn", lines),
        _arms(path, page, "champions", lines), page.notes, tuple(questions), page.calibration,
    )  # fmt: skip


def _check_names(path: Path, lines: Mapping[ScaleName, Sequence[Line]]) -> None:
    """Refuse two arms of one name at one scale: rows and tables could not tell them apart."""
    for scale, own in lines.items():
        twice = [name for name, count in Counter(line.arm.name for line in own).items() if count > 1]
        if twice:
            raise ConfigError(
                f"{path}: {scale}: two arms are called {twice[0]!r}; give each a name of its own"
            )


def _arms(path: Path, page: Page, key: str, lines: Mapping[ScaleName, Sequence[Line]]) -> tuple[str, ...]:
    """Return the arms that the page names under `key`, all of them known."""
    names: tuple[str, ...] = getattr(page, key)
    _check_arms(path, key, names, lines)
    return names


def _check_arms(
    path: Path, key: str, names: Iterable[str], lines: Mapping[ScaleName, Sequence[Line]]
) -> None:
    _check_known(path, key, names, {line.arm.name: "" for own in lines.values() for line in own}, "arm")


def _shown(path: Path, page: Page, lines: Mapping[ScaleName, Sequence[Line]]) -> tuple[str, ...]:
    """Return the suites that are shown, all of them measured."""
    measured = {m.suite: "" for own in lines.values() for line in own for m in line.scale.measures}
    _check_known(path, "tables", page.tables, measured, "suite that is measured")
    return page.tables


def _check_known(path: Path, key: str, names: Iterable[str], known: Collection[str], what: str) -> None:
    for name in names:
        if name not in known:
            raise ConfigError(
                f"{path}: {key}: no {what} is called {name!r}; there are: {', '.join(known)}{did_you_mean(name, known)}"
            )


def _wrong(path: Path, errors: list[str]) -> ConfigError:
    return ConfigError(f"{path}: " + "\n  ".join(errors))


def _entries(kind: type[Any], given: Any, where: str, errors: list[str]) -> list[Any]:
    if not isinstance(given, list):
        errors.append(f"{where}: expected [[{where}]] tables, got {given!r}")
        return []
    made = [build_table(kind, entry, f"{where}[{place}]", errors) for place, entry in enumerate(given)]
    return [entry for entry in made if entry is not None]


def _scale(name: ScaleName, page: Page, near: Path, errors: list[str]) -> Scale:
    """Return a scale of its own, or the base's with what is told laid over it."""
    told = dict(getattr(page, name))
    measures = tuple(_entries(Measure, told.pop("measures", []), f"{name}.measures", errors))
    own = dataclasses.replace(build_table(Scale, told, name, errors) or Scale(), measures=measures)
    errors += wrong_scale(name, own)
    if not page.base:
        return own
    base = find_study(page.base, near).scales[name]
    return dataclasses.replace(
        own, seeds=own.seeds or base.seeds, run=overlaid(base.run, own.run), watch=own.watch or base.watch,
        measures=measures or base.measures, needs=own.needs or base.needs,
        new_data=own.new_data or base.new_data,
    )  # fmt: skip


def _own(arms: list[Arm], scale: Scale, name: ScaleName) -> list[Line]:
    every = [one for arm in arms for one in (arm, *_with_settings(arm))]
    return [Line(arm, scale, name) for arm in every if name in arm.scales]


def _with_settings(arm: Arm) -> list[Arm]:
    """Return one more arm for each of its settings, named after what differs."""
    return [
        dataclasses.replace(
            arm, name=f"{arm.name}#{place}", change=overlaid(arm.change, settings), settings=(), of=arm.name,
            published=(), note=_told(settings),
        )
        for place, settings in enumerate(arm.settings, start=1)
    ]  # fmt: skip


def _told(table: Mapping[str, Any]) -> str:
    """Return a nested table as words: ``noise.add 0.1, alpha 2``."""
    words = []
    for key, value in table.items():
        inner = _told(value) if isinstance(value, Mapping) else f"{key} {value}"
        words.append(inner)
    return ", ".join(words)


def _taken(taken: list[Take], name: ScaleName, near: Path) -> list[Line]:
    lines = []
    for take in taken:
        study = find_study(take.study, near)
        there = {line.arm.name: line for line in study.lines(name)}
        wanted = [arm for arm in take.arms if arm in there or not _known(study, arm)]
        lines += [there[arm] if len(taken) == 1 else _told_apart(there[arm], take.study) for arm in wanted]
    return lines


def _told_apart(line: Line, study: str) -> Line:
    """Return the line of a study beside those of others, which may have arms of the same name."""
    return dataclasses.replace(line, arm=dataclasses.replace(line.arm, name=f"{study}:{line.arm.name}"))


def _known(study: Study, arm: str) -> bool:
    """Tell whether the arm is of that study, perhaps at the other scale; refuse one that is not."""
    names = {line.arm.name for line in (*study.small, *study.full)}
    if arm not in names:
        raise ConfigError(
            f"take: no arm {arm!r} in {study.id}; it has: {', '.join(sorted(names))}{did_you_mean(arm, names)}"
        )
    return True


def overlaid(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested tables with those of `over` laid on those of `under`.

    >>> overlaid({"train": {"epochs": 3, "seed": 0}}, {"train": {"seed": 1}})
    {'train': {'epochs': 3, 'seed': 1}}
    """
    both = {**under, **over}
    for key in under.keys() & over.keys():
        if isinstance(under[key], Mapping) and isinstance(over[key], Mapping):
            both[key] = overlaid(under[key], over[key])
    return both
