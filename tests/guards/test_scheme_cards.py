"""Every scheme has a card, and the numbers of the cards are those of the claim that a command made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nfm.method.schemes import SCHEMES

ROOT = Path(__file__).parents[2]
CARDS = ROOT / "docs" / "schemes"
TABLE = json.loads((ROOT / "claims" / "digits-schemes.json").read_text())["scales"]["small"]["tables"][0]
COLUMNS = {("clean", 0.0): "clean", ("white_noise", 0.3): "σ=.3", ("salt_and_pepper", 0.1): "γ=.1"}
HEAD = "| scheme | clean | σ=.3 | γ=.1 | calibration error, clean | at σ=.3 |"


def line_of(arm: str) -> str:
    """Return the row of a card: accuracies and calibration errors in %, with their deviation over seeds."""
    line = next(line for line in TABLE["lines"] if line["arm"] == arm)
    places = [place for place, column in enumerate(TABLE["columns"]) if tuple(column) in COLUMNS]
    cells = [line["accuracy"][place] for place in places] + [line["ece"][place] for place in places[:2]]
    told = [f"{100 * cell['mean']:.1f} ± {100 * cell['std']:.1f}" for cell in cells]
    return f"| `{arm}` | {' | '.join(told)} |"


def card_of(scheme: str) -> str:
    """Return the name of the card on which a scheme stands."""
    family = scheme.removesuffix("_high").removesuffix("_authors")
    return family if scheme != "erm" else "index"


def measured(claim: dict[str, Any]) -> set[str]:
    return {line["arm"] for line in claim["lines"]}


@pytest.mark.parametrize("scheme", sorted(SCHEMES))
def test_a_card_has_the_measured_numbers(scheme: str) -> None:
    text = (CARDS / f"{card_of(scheme)}.md").read_text(encoding="utf-8")
    if scheme != "erm":
        assert HEAD in text
        assert line_of(scheme) in text, f"the card should say: {line_of(scheme)}"
        assert line_of("erm") in text  # beside plain training
    assert scheme in measured(TABLE)


def test_a_number_that_is_not_measured_would_be_seen() -> None:
    text = (CARDS / "nfm.md").read_text(encoding="utf-8")
    assert line_of("nfm").replace("±", "+") not in text
    assert line_of("cutmix") not in text
