"""Looks: a scheme has one colour, marker and stroke in all figures, and no two are alike in one of them."""

from __future__ import annotations

from typing import Any

import pytest

from nfm.plots import corruption_bars, curves, reliability_diagrams, training_comparison
from nfm.plots.canvas import FAINT, INK
from nfm.plots.looks import HATCHES, KNOWN, LOOKS, Look, looks
from nfm.reproduce.reading import find_study, study_names

pytest.importorskip("matplotlib")

BY_LEVEL = {"high-noise"}  # its arms are levels of one scheme: they are drawn in the order of the palette
WITH_LINES = {"curves", "attacks", "corruptions", "training"}
DRAWN = [
    name for name in study_names() if WITH_LINES & set(find_study(name).figures) and name not in BY_LEVEL
]


def rows_of_arms(name: str) -> list[dict[str, Any]]:
    study = find_study(name)
    arms = [line.arm for line in study.small if not study.drawn or line.arm.name in study.drawn]
    return [{"arm": arm.name, "scheme": arm.title} for arm in arms]


@pytest.mark.parametrize("name", DRAWN)
def test_an_arm_looks_the_same_in_every_study(name: str) -> None:
    rows = rows_of_arms(name)
    found = looks(rows)
    for row in rows:
        assert found[row["scheme"]] == KNOWN[row["arm"].rpartition(":")[2]], row
    assert len(set(found.values())) == len(found) >= 5


def test_what_is_known_differs_but_for_other_alphas() -> None:
    alphas = {"mixup_01", "noisy_mixup_01", "manifold_01", "nfm_01", "nfm_ours"}
    own = [look for name, look in KNOWN.items() if name not in alphas]
    assert len(set(own)) == len(own)
    assert set(KNOWN.values()) <= set(LOOKS)


def test_what_is_unknown_takes_what_is_left() -> None:
    found = looks([{"scheme": name} for name in ("mine", "erm", "yours")])
    assert found == {"mine": LOOKS[1], "erm": KNOWN["erm"], "yours": LOOKS[2]}
    assert list(found) == ["mine", "erm", "yours"]
    many = looks([{"scheme": f"s{place}"} for place in range(30)])
    assert len(set(many.values())) == len(LOOKS) < len(many)


def test_two_studies_arms_of_one_name_are_told_apart() -> None:
    found = looks([{"scheme": "NFM", "arm": "a:nfm"}, {"scheme": "NFM, longer", "arm": "b:nfm"}])
    assert found["NFM"] == KNOWN["nfm"] != found["NFM, longer"]
    assert looks([{"scheme": "NFM", "arm": "a:nfm"}, {"scheme": "NFM", "arm": "b:nfm"}]) == {
        "NFM": KNOWN["nfm"]
    }


def cell(arm: str, perturbation: str, level: float) -> dict[str, Any]:
    about = {"protocol": "pixel", "n": 10, "ids": "x", "seed": 0, "data": "d", "train_seed": 0}
    return about | {
        "arm": arm, "scheme": f"label of {arm}", "perturbation": perturbation, "level": level, "accuracy": 0.5,
        "lo": 0.4, "hi": 0.6,
    }  # fmt: skip


ARMS = ("nfm", "mine", "adversarial")
LOOK_OF = dict(zip(ARMS, (KNOWN["nfm"], LOOKS[0], KNOWN["adversarial"]), strict=True))


def test_lines_have_the_looks_of_their_arms() -> None:
    drawn = (
        curves([cell(arm, "white_noise", level) for arm in ARMS for level in (0.1, 0.2)]).axes[0].get_lines()
    )
    epochs = [{"arm": arm, "scheme": f"label of {arm}", "epoch": 0, "train_loss": 1.0} for arm in ARMS]
    for lines in (drawn, training_comparison(epochs).axes[0].get_lines()):
        found = {line.get_label(): Look(line.get_color(), line.get_linestyle()) for line in lines}
        assert found == {f"label of {arm}": look for arm, look in LOOK_OF.items()}
    assert [line.get_marker() for line in drawn] == ["X", "o", "D"]
    assert [line.get_markerfacecolor() for line in drawn] == [LOOK_OF["nfm"].colour, LOOKS[0].colour, "white"]


def test_bars_and_bins_have_the_looks_of_their_arms() -> None:
    from matplotlib.colors import to_hex

    left, _ = corruption_bars([cell(arm, "fog", level) for arm in ARMS for level in (1, 2)]).axes
    found = [(to_hex(bar.get_facecolor()).upper(), bar.get_hatch()) for bar in left.patches]
    assert found == [(look.colour, HATCHES[look.stroke]) for look in LOOK_OF.values()]
    whiskers = [to_hex(bars.errorbar.lines[2][0].get_color()[0]).upper() for bars in left.containers[1::2]]
    assert whiskers == [FAINT, INK, INK]  # the first stands on black
    bins = [cell(arm, "fog", 1) | {"confidence": 0.5, "ece": 0.1} for arm in ARMS]
    (axes,) = reliability_diagrams(bins).axes
    edges = [to_hex(one.get_edgecolor()[0]).upper() for one in axes.collections if len(one.get_edgecolor())]
    assert set(edges) == {look.colour for look in LOOK_OF.values()}
