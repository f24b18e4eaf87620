"""Signs that a model hides its gradient: flags that need several cells, put into the rows they concern.

Athalye et al. 2018, "Obfuscated gradients give a false sense of security"; Carlini et al. 2019, "On
evaluating adversarial robustness". A difference of two cells counts where McNemar's paired test finds it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from nfm.errors import DataError
from nfm.evaluate.attack import Attack
from nfm.evaluate.attacks import ATTACKS
from nfm.evaluate.metrics import mcnemar
from nfm.evaluate.noise import UniformNoise
from nfm.evaluate.pgd import FGSM
from nfm.evaluate.report import Report
from nfm.evaluate.square import Square
from nfm.evaluate.suites import Cell
from nfm.results import Row

SURE = 0.01  # p-value below which a difference is taken as one
BROKEN = 0.01  # accuracy that an attack of linf eps=1, to which every picture is in reach, may leave


def flag_attacks(report: Report, cells: Sequence[Cell], faults: Callable[[], Mapping[str, float]]) -> bool:
    """Add flags to the rows of gradient attacks in `report`; tell whether there were any.

    `faults` returns the share of examples whose gradient is of no use, by the fault.
    """
    white = [cell for cell in cells if _is_white_box(cell)]
    if not white:
        return False
    told = [f"{fault} ({100 * share:.3g}%)" for fault, share in faults().items() if share > 0]
    found = [(cell, flag) for flag in told for cell in white]
    found += [pair for cell in white for pair in _suspicions(report, cells, cell)]
    for cell, flag in found:
        flags = report.row(*cell.key)["flags"]
        if flag not in flags:
            flags.append(flag)
    return bool(found)


def remembered(rows: Iterable[Row]) -> list[Cell]:
    """Return the cells of `rows` that flags may need: those of known attacks and of uniform noise."""
    known = {name: ATTACKS[name] for name in ATTACKS} | {UniformNoise.name: UniformNoise}
    found = []
    for row in rows:
        kind = known.get(row["perturbation"].partition("(")[0])
        if kind is None:
            continue
        try:
            found.append(Cell(kind(**row["settings"]), row["level"]))
        except (TypeError, ValueError) as error:
            raise DataError(
                f"expected the settings of {row['perturbation']} in its row, got {error}"
            ) from None
    return found


def _suspicions(report: Report, cells: Sequence[Cell], cell: Cell) -> Iterator[tuple[Cell, str]]:
    """Yield what speaks against the number of one gradient attack."""
    many_steps = not isinstance(cell.perturbation, FGSM)
    for other in cells:
        if other.level == cell.level and many_steps and _beats(report, other, cell):
            if isinstance(other.perturbation, FGSM):
                yield cell, "FGSM stronger than PGD"
            if isinstance(other.perturbation, Square | UniformNoise):
                yield cell, "black box stronger than white box"
        if (
            other.perturbation == cell.perturbation
            and other.level < cell.level
            and _beats(report, other, cell)
        ):
            yield cell, "accuracy rises with eps"
    covers_all = getattr(cell.perturbation, "norm", "") == "linf" and cell.level == 1
    if many_steps and covers_all and report.row(*cell.key)["accuracy"] > BROKEN:
        yield cell, "eps=1 does not break the model"


def _is_white_box(cell: Cell) -> bool:
    return (
        isinstance(cell.perturbation, Attack) and not isinstance(cell.perturbation, Square) and cell.level > 0
    )


def _beats(report: Report, first: Cell, second: Cell) -> bool:
    """Tell whether the first cell leaves surely fewer examples right; both must move in the same norm."""
    norms = [getattr(cell.perturbation, "norm", "linf") for cell in (first, second)]
    if norms[0] != norms[1] or not isinstance(first.perturbation, Attack | UniformNoise):
        return False
    test = mcnemar(report.outcomes[first.key].correct, report.outcomes[second.key].correct)
    return test.only_second > test.only_first and test.p_value < SURE
