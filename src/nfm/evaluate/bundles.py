"""The three suites most people need: `quick`, `paper`, `full`; each is made of named ones."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from nfm.data.examples import ExampleSet, to_unit
from nfm.errors import UsageError
from nfm.evaluate.apgd import APGD
from nfm.evaluate.attack import Attack, parse_eps
from nfm.evaluate.attacks import Strong
from nfm.evaluate.corruptions import AUTHORS, CORRUPTIONS, Corruption
from nfm.evaluate.noise import Blur, Occlusion, Shot, Speckle, UniformNoise
from nfm.evaluate.perturbation import Perturbation, check_images, check_pixels
from nfm.evaluate.pgd import PGD7
from nfm.evaluate.protocols import EvaluationProtocol
from nfm.evaluate.square import Square
from nfm.evaluate.subject import check_examples
from nfm.evaluate.suites import SUITES, Cell, Suite, cells, choose_suite

EPS = ("1/255", "2/255", "4/255", "8/255")  # linf, ours: the paper tells no grid
RADII = (0.05, 0.1, 0.25, 0.5)  # l2 in pixels, ours: the paper's figure is in l2 and tells no unit
EXTRAS = (0.05, 0.1, 0.2)
BUNDLES = ("quick", "paper", "full")


def _attacked(attack: Attack, sizes: Iterable[str | float]) -> list[Cell]:
    return cells(attack, [parse_eps(size) for size in sizes])


def _corrupted(families: Iterable[str]) -> list[Cell]:
    return [cell for family in families for cell in cells(Corruption(family), range(1, 6))]


def _joined(names: Iterable[str], *more: Iterable[Cell]) -> list[Cell]:
    """Return the cells of named suites, and more, each once."""
    known = [cell for name in names for cell in SUITES[name]]
    return list(dict.fromkeys([*known, *(cell for part in more for cell in part)]))


SUITES.add("quick", SUITES["cifar"])
SUITES.add(
    "paper",
    _joined(
        ("curves",), _corrupted(AUTHORS), _attacked(PGD7("l2"), RADII), _attacked(PGD7(), EPS),
        _attacked(APGD(), EPS[1:2]), _attacked(APGD("l2"), RADII[2:3]),  # PGD-7 alone tells little
    ),
)  # fmt: skip
SUITES.add(
    "full",
    _joined(
        ("paper", "vit", "imagenet", "attacks"),
        _corrupted(CORRUPTIONS),
        *(cells(noise, EXTRAS) for noise in (Speckle(), Shot(), UniformNoise(), Occlusion())),
        cells(Blur(), (0.5, 1.0, 2.0)), _attacked(Strong(), EPS[1:]), _attacked(Strong("l2"), RADII[2:]),
    ),
)  # fmt: skip


def fitting(
    suite: str | Suite, protocol: EvaluationProtocol, examples: ExampleSet
) -> tuple[list[Cell], list[str]]:
    """Return the cells of a suite that protocol and examples allow, and why the others are left out.

    Only `quick`, `paper` and `full` are thinned out: what was asked for by name or by cells is measured or refused.
    """
    chosen = choose_suite(suite)
    if not isinstance(suite, str) or suite not in BUNDLES:
        return chosen, []
    check_examples(examples)
    first, ids = to_unit(examples.fetch(torch.tensor([0]))), examples.ids[:1]
    check_pixels(first, ids)
    reasons = {cell: _reason(cell, protocol, first, ids) for cell in chosen}
    left_out = dict.fromkeys(f"{cell.perturbation.label}: {why}" for cell, why in reasons.items() if why)
    return [cell for cell, why in reasons.items() if not why], list(left_out)


def _reason(cell: Cell, protocol: EvaluationProtocol, x: Tensor, ids: Tensor) -> str:
    """Return why a cell cannot be measured on examples such as `x`, seen by trying it on one; or nothing."""
    change = cell.perturbation
    try:
        protocol.check(change)
        if isinstance(change, Square | Strong):
            check_images(x, change.name)
        if isinstance(change, Perturbation):
            protocol.perturb(x, ids, change, cell.level, seed=0)
    except UsageError as error:
        return str(error)
    return ""
