"""The attacks by name, the strong ensemble, and suites of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar

from torch import Tensor

from nfm.evaluate.apgd import APGD
from nfm.evaluate.attack import Attack, parse_eps
from nfm.evaluate.checks import Classifier, predict
from nfm.evaluate.keyed import Stream
from nfm.evaluate.losses import RANKED
from nfm.evaluate.noise import Clean, UniformNoise
from nfm.evaluate.pgd import FGSM, PGD, PGD7
from nfm.evaluate.square import Square
from nfm.evaluate.suites import SUITES, Cell, cells
from nfm.registry import Registry


@dataclass(frozen=True)
class Strong(Attack):
    """Auto-PGD on the cross-entropy, then on the targeted DLR loss, then Square; each on what still stands.

    This is AutoAttack (Croce & Hein 2020) without its FAB; l2 is without Square, too. Below 4 classes, where
    that ratio is not defined, the cross-entropy from other starts takes its place.
    """

    steps: int = 100
    targets: int = 9
    queries: int = 5000

    name: ClassVar[str] = "strong"

    def members(self) -> list[Attack]:
        """Return the attacks in the order they are run."""
        gradient: list[Attack] = [
            APGD(self.norm, loss="ce", steps=self.steps),
            APGD(self.norm, loss="dlr_targeted", steps=self.steps, targets=self.targets),
        ]
        return gradient + ([Square(queries=self.queries)] if self.norm == "linf" else [])

    def attempts(self) -> int:
        """Return the attempts of all members."""
        return sum(member.attempts() for member in self.members())

    def passes(self) -> int:
        """Return the forward passes of all members."""
        return sum(member.passes() for member in self.members())

    def search(
        self, model: Classifier, x: Tensor, y: Tensor, stream: Stream, eps: float, attempt: int
    ) -> Tensor:
        """Return the result of the member whose turn it is."""
        for member in self.members():
            if attempt < member.attempts():
                break
            attempt -= member.attempts()
        if isinstance(member, APGD) and member.loss != "ce" and predict(model, x).shape[1] < RANKED:
            member, attempt = replace(member, loss="ce"), attempt + 1  # 0 was the first member's start
        return member.search(model, x, y, stream, eps, attempt)


ATTACKS: Registry[type[Attack]] = Registry("attack")
for _attack in (FGSM, PGD, PGD7, APGD, Square, Strong):
    ATTACKS.add(_attack.name, _attack)


def attack_suite(eps: Iterable[str | float], *, norm: str = "linf", queries: int = 1000) -> list[Cell]:
    """Return the clean cell and, at each eps, what a sound evaluation needs side by side.

    FGSM, PGD and a black box tell whether the gradient is to be trusted, PGD at eps=1 whether
    the attack can break anything at all (linf).
    """
    sizes = [parse_eps(size) for size in eps]
    suite = [Cell(Clean(), 0.0)]
    for attack in (FGSM(norm), PGD7(norm), PGD(norm)):
        suite += cells(attack, sizes)
    if norm == "linf":
        suite += [
            *cells(Square(queries=queries), sizes),
            *cells(UniformNoise(), sizes),
            *cells(PGD(norm), [1.0]),
        ]
    return suite


SUITES.add("attacks", attack_suite(["2/255", "8/255"]))
