"""What a report is made of: evaluations as found on disk, with the training behind them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from nfm.errors import DataError, UsageError
from nfm.evaluate.report import IDENTITY, ROWS, Folder, Key, Report, load_report
from nfm.evaluate.strip import Strip
from nfm.results import Row, read_object, read_rows

RUN = "run.json"
ABOUT = "about.json"  # beside the rows of an evaluation: names of classes, of the network


@dataclass(frozen=True)
class Source:
    """One model under one protocol: its rows and outcomes, its training, and what tables call it."""

    path: Path
    report: Report
    label: str
    run: Row = field(default_factory=dict)  # what the run was made from; empty where there is no run
    about: Row = field(default_factory=dict)
    made_by: Row = field(default_factory=dict)
    epochs: tuple[Row, ...] = ()

    @property
    def rows(self) -> list[Row]:
        """The rows, under the label."""
        return [row | {"scheme": self.label} for row in self.report.rows]

    @property
    def home(self) -> Path:
        """The folder of the run, or that of the rows."""
        return self.path.parent if self.run else self.path

    @property
    def train_seed(self) -> Any:
        """The seed of the training, where it is known."""
        return self.report.rows[0].get("train_seed")

    @property
    def model(self) -> Any:
        """What tells one set of weights from another."""
        return self.report.identity.get("model")

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes, where they are known."""
        names = self.about.get("classes")
        return tuple(map(str, names)) if isinstance(names, list) else ()

    def strip(self, key: Key) -> Strip | None:
        """Return what a few examples of a cell look like, if they were kept."""
        folder = Folder(self.path)
        return folder.read_strip(key) if folder.has_strip(key) else None


def read_sources(paths: Iterable[Path | str]) -> list[Source]:
    """Return every evaluation in `paths`: folders of runs, of evaluations, or with rows alone; each once."""
    folders = {folder.resolve(): folder for path in paths for folder in _folders(Path(path))}
    if not folders:
        raise UsageError("expected at least one run, got none")
    return _labelled([source for folder in folders.values() for source in _read(folder)])


def select(
    sources: Iterable[Source], *, protocol: str | None = None, data: str | None = None
) -> list[Source]:
    """Return the sources under a protocol and on a data set, where they are told."""
    sources = list(sources)
    wanted = {name: value for name, value in (("protocol", protocol), ("data", data)) if value is not None}
    chosen = [s for s in sources if all(s.report.rows[0].get(key) == value for key, value in wanted.items())]
    if not chosen:
        known = {name: sorted({str(s.report.rows[0].get(name)) for s in sources}) for name in wanted}
        raise UsageError(f"expected evaluations with {wanted}, found none; there are: {known}")
    return chosen


def _folders(path: Path) -> list[Path]:
    """Return the folders with rows of evaluations at `path` or right beneath it."""
    if (path / IDENTITY).exists():
        return [path]
    beneath = sorted(file.parent for file in path.glob(f"*/{IDENTITY}")) if path.is_dir() else []
    if not beneath and (path / ROWS).exists() and not (path / RUN).exists():
        return [path]
    if not beneath:
        raise UsageError(
            f"{path}: expected a run that was measured, found no evaluation; nfm evaluate {path}"
        )
    return beneath


def _read(folder: Path) -> Iterator[Source]:
    if not (folder / IDENTITY).exists():
        yield from _rows_alone(folder)
        return
    report = load_report(folder)
    if not report.rows:
        raise UsageError(f"{folder}: expected an evaluation with at least one measured cell, found none")
    home = folder.parent
    yield Source(
        folder, report, scheme_of(report.rows[0]), _table(home / RUN), _table(folder / ABOUT),
        Folder(folder).made_by(), tuple(_epochs(home)) if (home / RUN).exists() else (),
    )  # fmt: skip


def _rows_alone(folder: Path) -> Iterator[Source]:
    """Yield one source a model of rows without outcomes, such as those of ``nfm demo``."""
    models: dict[tuple[Any, ...], list[Row]] = {}
    for row in read_rows(folder / ROWS):
        if "perturbation" not in row:
            raise DataError(f"{folder / ROWS}: expected rows of an evaluation, got one without perturbation")
        models.setdefault((scheme_of(row), row.get("train_seed"), row.get("model")), []).append(row)
    for (scheme, _, model), rows in models.items():
        made_by = rows[0].get("made_by")
        plain = [{key: value for key, value in row.items() if key != "made_by"} for row in rows]
        yield Source(folder, Report({"model": model}, plain), scheme, made_by=made_by or {})


def scheme_of(row: Mapping[str, Any]) -> str:
    """Return what a row calls its model."""
    return str(row.get("scheme") or row.get("model") or "model")


def _epochs(home: Path) -> Iterator[Row]:
    rows = home / ROWS
    return (row for row in (read_rows(rows) if rows.exists() else ()) if row.get("kind") == "epoch")


def _table(file: Path) -> Row:
    return read_object(file, "a JSON object") if file.exists() else {}


def settings_of(source: Source) -> str:
    """Return everything a training was made from but its seed: runs that agree are seeds of one scheme."""
    recipe = source.run.get("recipe")
    config = recipe.get("config") if isinstance(recipe, dict) else None
    if not isinstance(config, dict):
        return str(source.report.rows[0].get("network"))
    train = config.get("train")
    rest = {key: value for key, value in train.items() if key != "seed"} if isinstance(train, dict) else train
    return json.dumps(config | {"train": rest}, sort_keys=True)


def _labelled(sources: Sequence[Source]) -> list[Source]:
    """Return the sources with labels that tell different trainings of one scheme apart."""
    groups: dict[str, list[Source]] = {}
    for source in sources:
        groups.setdefault(source.label, []).append(source)
    return [_label(source, groups[source.label]) for source in sources]


def _label(source: Source, group: Sequence[Source]) -> Source:
    seeds, models = (
        {other.train_seed for other in group},
        {(other.train_seed, other.model) for other in group},
    )
    if len({settings_of(other) for other in group}) == 1 and len(seeds) == len(models):
        return source
    homes = {other.home.resolve() for other in group}
    if len(homes) < len({other.model for other in group}):
        where = str(source.path)
    else:
        where = source.home.name if len({home.name for home in homes}) == len(homes) else str(source.home)
    return replace(source, label=f"{source.label} ({where})")
