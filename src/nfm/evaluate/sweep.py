"""Measure a classifier on every cell of a suite."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from nfm.data.examples import ExampleSet
from nfm.errors import UsageError
from nfm.evaluate.attack import Attack
from nfm.evaluate.checks import Classifier, measuring
from nfm.evaluate.honesty import flag_attacks, remembered
from nfm.evaluate.outcomes import Outcomes
from nfm.evaluate.protocols import EvaluationProtocol, choose_protocol
from nfm.evaluate.report import Folder, Key, Report
from nfm.evaluate.strip import choose_shown
from nfm.evaluate.subject import Subject
from nfm.evaluate.suites import Cell, Suite, choose_suite
from nfm.randomness import check_seed
from nfm.results import Row

Progress = Callable[[str, int, int], None]  # what is measured; work done and in all, in passes of an example

FEW = 1000  # examples: below, Wilson's interval is wider than 3 points each way at 50%


def evaluate(
    model: Classifier,
    examples: ExampleSet,
    suite: str | Suite = "cifar",
    *,
    protocol: str | EvaluationProtocol = "pixel",
    seed: int = 0,
    batch_size: int = 250,
    classes: int | None = None,
    held_out: ExampleSet | None = None,
    tags: Mapping[str, Any] | None = None,
    flags: Sequence[str] = (),
    force: bool = False,
    progress: Progress | None = None,
    save_to: Path | str | None = None,
    overwrite: bool = False,
    resume_from: Path | str | None = None,
) -> Report:
    """Return a report of `model`, any callable from [0, 1] pixels to logits, on every cell of `suite`.

    A model whose numbers would mean nothing (stochastic, softmax output, NaN, output that depends on the
    batch) is refused before anything is measured; `force` turns the refusal into a flag of every row.
    With `held_out` examples a temperature is fitted on them, and each row tells the calibration with it too.
    `tags` go into each row (scheme, train_seed, data: what tables group by), `flags` among its flags.
    `save_to` writes every finished cell at once. Cells found there or in `resume_from` are not measured again:
    they must be of the same model, protocol, examples and seed, or the directory is refused; `overwrite` clears it
    first, once nothing else is to be refused.
    """
    subject = Subject(model, examples, choose_protocol(protocol, model), check_seed(seed), batch_size)
    cells = choose_suite(suite)
    subject.check_cells(cells)
    with measuring(model):
        problems = subject.problems(classes)
        if problems and not force:
            raise UsageError(f"refused: {', '.join(problems)}; force=True measures it all the same, flagged")
        if held_out is not None:
            subject = subject.calibrated_on(held_out)
        report = Report(subject.identity())
        folder = Folder(Path(save_to)) if save_to is not None else None
        if folder and overwrite:
            folder.clear()
        held = folder.open(report.identity) if folder else Report(report.identity)
        other = Folder(Path(resume_from)).match(report.identity) if resume_from else Report(report.identity)
        measured = held.outcomes | other.outcomes
        meter = Meter(progress, [cell for cell in cells if _reuse(measured, cell) is None], len(examples))
        for cell in cells:
            outcomes = _reuse(measured, cell)
            if outcomes is None:
                outcomes = subject.measure(cell, force=force, step=meter.of(cell))
            measured[cell.key] = outcomes
            row = make_row(subject, cell, outcomes, report.identity, [*problems, *flags])
            report.add(row | dict(tags or {}), outcomes)
            if folder and cell.key not in held.outcomes:
                folder.write(report.rows[-1], outcomes)
            if folder and _can_be_shown(cell, examples) and not folder.has_strip(cell.key):
                folder.write_strip(cell.key, subject.show(cell, choose_shown(examples)))
        whole = report.joined(held, other)  # a flag may need a cell that was measured before
        compared = list(dict.fromkeys([*cells, *remembered(whole.rows)]))
        if flag_attacks(whole, compared, subject.gradient_faults) and folder:
            folder.rewrite(whole.rows)
    return report


def make_row(subject: Subject, cell: Cell, outcomes: Outcomes, identity: Row, problems: list[str]) -> Row:
    """Return the row of one cell: what was measured, its level in both units, the numbers and the flags."""
    change, protocol = cell.perturbation, subject.protocol
    pixel, normalised = protocol.units(change, cell.level)
    few = [f"n<{FEW}"] if len(subject.examples) < FEW else []
    what = {
        "perturbation": change.label,
        "settings": asdict(change),
        "level": cell.level,
        "level_pixel": pixel,
        "level_normalised": normalised,
        "protocol": protocol.name,
        "flags": [*problems, *outcomes.flags(), *few, *protocol.flags(change)],
    }
    eps = {"level_255": 255 * cell.level} if isinstance(change, Attack) else {}
    return identity | outcomes.summary() | what | eps


def _reuse(measured: Mapping[Key, Outcomes], cell: Cell) -> Outcomes | None:
    """Return the outcomes of `cell` if they are known; at level 0 all perturbations are the same."""
    same = [cell.key] if cell.level else [key for key in measured if key[1] == 0]
    return next((measured[key] for key in same if key in measured), None)


def _can_be_shown(cell: Cell, examples: ExampleSet) -> bool:
    """Tell whether the cell makes pictures that are the same for all models."""
    return (
        len(examples.shape) == 3 and examples.shape[0] in (1, 3) and not isinstance(cell.perturbation, Attack)
    )


class Meter:
    """Tells `progress` of each batch how much is done of what is still to be measured."""

    def __init__(self, progress: Progress | None, cells: Sequence[Cell], examples: int) -> None:
        work = {cell.key if cell.level else None: _passes(cell) for cell in cells}  # level 0 is measured once
        self.progress, self.done, self.total = progress, 0, examples * sum(work.values())

    def of(self, cell: Cell) -> Callable[[int], None]:
        """Return what is told of each batch of `cell`."""

        def step(count: int) -> None:
            self.done += count * _passes(cell)
            if self.progress is not None:
                self.progress(cell.label, self.done, self.total)

        return step


def _passes(cell: Cell) -> int:
    return cell.perturbation.passes() if cell.level else 1
