"""What a study leaves: the front as a table, as a picture, and as recipes that `nfm train` takes as they are."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from nfm.config.write import write_config
from nfm.errors import EnvironmentProblem, NumericalError
from nfm.evaluate.metrics import wilson_interval
from nfm.evaluate.suites import Cell
from nfm.plots.canvas import save_figure
from nfm.plots.pareto import pareto_front
from nfm.plots.table import align
from nfm.results import Row, write_atomically
from nfm.tune.dominance import COMPLETE, FAILED, PRUNED, front_of
from nfm.tune.space import apply
from nfm.tune.study import Study

RECIPES = "front"
PICTURE = "pareto.png"


def finish(study: Study) -> str:
    """Write recipes and picture; return what a person wants to know."""
    front = front_of(study.rows)
    if not front:
        reasons = {row["reason"] for row in study.rows if row["state"] == FAILED}
        raise NumericalError(f"no trial came to its end: {'; '.join(sorted(reasons))}")
    recipes = _write_recipes(study, front)
    best = max(front, key=lambda row: row["clean"] + row["robust"])
    chosen, run = recipes[front.index(best)], study.folder / "chosen"
    return "\n".join([
        _table(study, front, best), "", *_notes(study, front), "",
        f"recipes: {study.folder / RECIPES}", f"picture: {_picture(study)}", "",
        "the highest mean of both (*); train it, and measure it on the test part, once:",
        f"  nfm train {_quoted(chosen)} --out {_quoted(run)}",
        f"  nfm evaluate {_quoted(run)} --levels {_levels(study.cells)}",
    ])  # fmt: skip


def _quoted(path: Path) -> str:
    return shlex.quote(str(path))


def _levels(cells: Sequence[Cell]) -> str:
    """Return the cells as `nfm evaluate --levels` takes them, for a shell."""
    levels: dict[str, list[str]] = {}
    for cell in cells:
        if cell.level:
            levels.setdefault(cell.perturbation.label, []).append(repr(cell.level))
    return " ".join(shlex.quote(f"{label}={','.join(found)}") for label, found in levels.items())


def _table(study: Study, front: Sequence[Row], best: Row) -> str:
    names = list(front[0]["settings"])
    reference = [row for row in study.rows if row["kind"] == "reference" and row["clean"] is not None]
    start = [
        row for row in study.rows if row.get("trial") == 0 and not row["front"] and row["state"] == COMPLETE
    ]
    lines = [
        [f"{place:02d}{'*' if row is best else ''}", *_line(row, names)] for place, row in enumerate(front, 1)
    ]
    others = [["", *_line(row, names)] for row in [*start, *reference]]
    title = f"Pareto front on validation, accuracy in %: {study.config.data.name}, {front[0]['n']} examples"
    return "\n".join([title, "", align([["front", "clean", "robust", "trial", *names], *lines, *others])])


def _line(row: Row, names: Sequence[str]) -> list[str]:
    trial = str(row["trial"]) if row["kind"] == "trial" else row["scheme"]
    shown = [_show(row["settings"].get(name, "-")) for name in names]
    return [
        f"{100 * row['clean']:.1f}",
        f"{100 * row['robust']:.1f}",
        f"{trial} (own)" if trial == "0" else trial,
        *shown,
    ]


def _show(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.3g}"


def _notes(study: Study, front: Sequence[Row]) -> list[str]:
    """Return what to keep in mind: how many trials there were, and how far these numbers can be trusted."""
    states = [row["state"] for row in study.rows if row["kind"] == "trial"]
    counts = ", ".join(
        f"{states.count(state)} {state}" for state in (COMPLETE, PRUNED, FAILED) if state in states
    )
    n, clean = front[0]["n"], front[0]["clean"]
    low, high = wilson_interval(round(clean * n), n)
    return [
        f"trials: {len(states)} ({counts})",
        f"note: chance alone moves {100 * clean:.1f}% of {n} between {100 * low:.1f} and {100 * high:.1f} (95%)",
        "note: the best of many trials looks better on validation than it is; the test part was not used",
    ]


def _write_recipes(study: Study, front: Sequence[Row]) -> list[Path]:
    """Write one recipe a trial of the front, from the cleanest to the most robust; take away older ones."""
    folder = study.folder / RECIPES
    for old in folder.glob("[0-9][0-9]*.toml"):
        old.unlink()
    paths = []
    for place, row in enumerate(front, 1):
        path = folder / f"{place:02d}.toml"
        text = write_config(apply(study.config, row["settings"]), _head(row, path))
        write_atomically(path, text.encode())
        paths.append(path)
    return paths


def _head(row: Row, path: Path) -> str:
    return (
        f"{row['scheme']} as found by `nfm tune`: trial {row['trial']}, on the Pareto front\n"
        f"command:  nfm train {path}\n"
        f"expected: {100 * row['clean']:.1f}% clean, {100 * row['robust']:.1f}% mean under "
        f"{', '.join(label for label in row['cells'] if not label.startswith('clean'))}\n"
        f"          of {row['n']} validation examples (chosen by them), n = 1 seed"
    )


def _picture(study: Study) -> str:
    """Draw the trials and return where they are; a study is good without, too."""
    config = study.config
    title = f"{config.method.scheme} tuned: {config.model.name} on {config.data.name}"
    try:
        return str(save_figure(pareto_front(study.rows, title=title), study.folder / PICTURE))
    except EnvironmentProblem as problem:
        return f"none ({problem})"
