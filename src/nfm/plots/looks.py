"""How schemes are drawn: one that is known looks the same in every figure, so that figures can be read together."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from nfm.plots.canvas import FAINT, INK, MARKERS, PALETTE
from nfm.plots.comparison import scheme_of
from nfm.results import Row

STROKES = ("-", "--", ":")  # colours come again with another one
HATCHES = dict(zip(STROKES, ("", "////", "...."), strict=True))  # a bar has no stroke


@dataclass(frozen=True)
class Look:
    """A colour and a stroke; what is not solid has hollow markers."""

    colour: str
    stroke: str = "-"

    @property
    def marker(self) -> str:
        """One a colour: lines are told apart in grey, too."""
        return MARKERS[PALETTE.index(self.colour)]

    @property
    def face(self) -> str:
        """The colour inside a marker."""
        return self.colour if self.stroke == "-" else "white"

    @property
    def line(self) -> dict[str, Any]:
        """What matplotlib's `plot` takes."""
        return {
            "color": self.colour, "linestyle": self.stroke, "marker": self.marker, "markerfacecolor": self.face,
        }  # fmt: skip

    @property
    def bar(self) -> dict[str, Any]:
        """What matplotlib's `bar` takes; a whisker is seen on its bar."""
        return {
            "color": self.colour, "hatch": HATCHES[self.stroke], "edgecolor": "white", "linewidth": 0,
            "ecolor": FAINT if self.colour == BLACK else INK,
        }  # fmt: skip


BLUE, VERMILION, GREEN, PINK, ORANGE, SKY, BLACK = PALETTE
LOOKS = [Look(colour, stroke) for stroke in STROKES for colour in PALETTE]
KNOWN = {
    "erm": Look(BLUE), "noise_injection": Look(BLUE, "--"), "noise_injection_authors": Look(BLUE, ":"),
    "mixup": Look(VERMILION), "noisy_mixup_authors": Look(VERMILION, "--"), "noisy_mixup": Look(VERMILION, ":"),
    "cutmix": Look(GREEN), "adversarial": Look(GREEN, "--"), "puzzlemix": Look(GREEN, ":"),
    "manifold_mixup": Look(PINK), "adversarial_001": Look(PINK, "--"), "label_smoothing": Look(PINK, ":"),
    "nfm_authors": Look(ORANGE), "nfm_1": Look(ORANGE, "--"),
    "nfm_authors_high": Look(SKY), "noisymix": Look(SKY, "--"),
    "nfm": Look(BLACK), "adversarial_nfm": Look(BLACK, "--"),
}  # fmt: skip
# Arms that are a known one with the alpha of another network.
KNOWN |= {
    "mixup_01": KNOWN["mixup"], "noisy_mixup_01": KNOWN["noisy_mixup_authors"],
    "manifold_01": KNOWN["manifold_mixup"], "nfm_01": KNOWN["nfm_authors"], "nfm_ours": KNOWN["nfm"],
}  # fmt: skip


def looks(rows: Iterable[Row]) -> dict[str, Look]:
    """Return the look of each scheme in `rows`, no two alike: that of its arm, or the next one that is free.

    >>> told = looks([{"scheme": "mine"}, {"scheme": "NFM (ours)", "arm": "cifar10-resnet18:nfm"}])
    >>> told["NFM (ours)"] == KNOWN["nfm"], told["mine"] == Look(BLUE)
    (True, True)
    """
    arms = {scheme_of(row): str(row.get("arm", scheme_of(row))).rpartition(":")[2] for row in rows}
    found: dict[str, Look] = {}
    for scheme, arm in arms.items():
        if arm in KNOWN and KNOWN[arm] not in found.values():
            found[scheme] = KNOWN[arm]
    free = itertools.cycle([look for look in LOOKS if look not in found.values()])
    return {scheme: found[scheme] if scheme in found else next(free) for scheme in arms}
