"""What each scheme costs: one training step over one of plain training, of a network so small that all of it shows."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.networks import Work, small_network, training
from benchmarks.side_by_side import Ratio, compare_all
from nfm.method.schemes import SCHEMES, scheme

ROUNDS, BEST_OF = 5, 2
COMPOSED = ("nfm + label_smoothing", "adversarial + nfm")


def _step(text: str) -> Work:
    method = scheme(text)
    return training(small_network(), lambda model, x, y: method(model, x, y).loss, steps=1)


def measure() -> Iterator[Ratio]:
    """Yield the cost of each scheme in units of plain training."""
    texts = (*(name for name in SCHEMES if name != "erm"), *COMPOSED)
    steps = {f"{text} step / erm step, three convolutions": _step(text) for text in texts}
    yield from compare_all(steps, _step("erm"), rounds=ROUNDS, best_of=BEST_OF)
