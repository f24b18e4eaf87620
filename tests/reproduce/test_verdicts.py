"""What tables say of the method, and what the README shows of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import pytest
from studies import TINY, write_tiny

from nfm.errors import ConfigError
from nfm.reproduce import front
from nfm.reproduce.in_short import CLAIM, answers, in_short
from nfm.reproduce.kinds import show_table
from nfm.reproduce.reading import read_study
from nfm.reproduce.study import Question
from nfm.reproduce.verdicts import answers_table, verdict_table


def line(
    arm: str, *means: float | None, std: float | None = 0.01, seeds: int = 3, n: int = 10_000
) -> dict[str, Any]:
    spread = {"lo": 0.40, "hi": 0.60} if std is None else {"std": std}
    seeds = 1 if std is None else seeds
    numbers = [None if mean is None else {"mean": mean, "seeds": seeds, "n": n, **spread} for mean in means]
    return {"arm": arm, "label": arm.upper(), "accuracy": numbers, "ece": [None] * len(means)}


def table(*lines: dict[str, Any]) -> dict[str, Any]:
    return {
        "kind": "cells", "measure": "cifar/authors/100", "protocol": "authors", "data": "cifar10", "n": 100,
        "columns": [["clean", 0.0], ["white_noise", 0.1]], "lines": list(lines),
    }  # fmt: skip


def test_a_champion_is_held_against_the_best_other_and_the_first() -> None:
    made = verdict_table(
        table(line("erm", 0.9, 0.5), line("cutmix", 0.95, 0.3), line("nfm", 0.90, 0.7), line("nfm2", 1, 1)),
        {"nfm", "nfm2"},
    )
    best, first = (each["columns"] for each in made["lines"][:2])
    assert made["others"] == 2
    assert [cell["rival"] for cell in best] == ["CUTMIX", "ERM"]
    assert [cell["difference"] for cell in best] == [-0.05, 0.2]
    assert [cell["rival"] for cell in first] == ["ERM", "ERM"]
    assert [cell["clear"] for cell in first] == [False, True]
    text = show_table(made)
    assert "**-5.0** (CUTMIX)" in text
    assert "**+20.0** (ERM)" in text
    assert "| +0.0 |" in text
    assert "| NFM | ERM | +0.0 | **+20.0** | clearly ahead in 1, behind in 0, of 2 |" in text


def test_a_difference_is_clear_when_it_is_more_than_both_deviations() -> None:
    def clear(difference: float, **how: Any) -> bool:
        held = verdict_table(table(line("erm", 0.5, **how), line("nfm", 0.5 + difference, **how)), {"nfm"})
        found: bool = held["lines"][0]["columns"][0]["clear"]
        return found

    assert clear(0.021, std=0.01)
    assert not clear(0.019, std=0.01)
    assert clear(0.011, std=0.0)  # of the images alone: 0.5 points on either side
    assert not clear(0.009, std=0.0)
    assert not clear(0.09, std=0.0, n=100)


def test_too_few_seeds_tell_nothing_clearly() -> None:
    def told(*others: dict[str, Any], **how: Any) -> str:
        lines = line("erm", 0.5, **how), line("nfm", 0.9, **how)
        return show_table(verdict_table(table(*lines, *others), {"nfm"}))

    assert "**+40.0**" in told()
    assert "too few" not in told()
    for how in ({"std": None}, {"seeds": 2}):
        assert "| +40.0 | too few seeds in 1 |" in told(**how)
        assert "Of fewer than 3 seeds no difference is called clear." in told(**how)
    lines = line("erm", 0.5, 0.4), line("nfm", 0.9, 0.9)
    lines[0]["accuracy"][1]["seeds"] = 2
    text = show_table(verdict_table(table(*lines), {"nfm"}))
    assert "| **+40.0** | +50.0 | clearly ahead in 1, behind in 0, of 1; too few seeds in 1 |" in text


def test_the_best_other_is_one_with_seeds_enough_and_higher_ones_are_told() -> None:
    lines = line("erm", 0.5, 0.5), line("nfm", 0.9, 0.8), line("new", 0.6, 0.95, seeds=1)
    made = verdict_table(table(*lines), {"nfm"})
    best = made["lines"][0]["columns"]
    assert [cell["rival"] for cell in best] == ["ERM", "ERM"]
    assert [cell["unjudged"] for cell in best] == [[], ["NEW"]]
    (sentence,) = answers([made])
    assert sentence.startswith("NFM, protocol authors: the claim is not shown.")
    assert sentence.endswith(" Higher, of fewer than 3 seeds: NEW in 1.")
    (without,) = answers([verdict_table(table(*lines[:2]), {"nfm"})])
    assert without.startswith("NFM, protocol authors: the claim holds.")


def test_what_was_not_measured_is_no_verdict() -> None:
    assert verdict_table(table(line("nfm", 0.5, 0.5)), {"nfm"})["lines"] == []
    assert "yet" in show_table(verdict_table(table(line("nfm", 0.5, 0.5)), {"nfm"}))
    made = verdict_table(table(line("erm", 0.5, None), line("nfm", 0.5, 0.5)), {"nfm"})
    assert made["lines"][0]["columns"][1] is None
    assert "| – |" in show_table(made)


def test_questions_are_answered_where_both_arms_were_measured() -> None:
    asked = [Question("Noise?", "nfm", "erm"), Question("Boxes?", "cutmix", "erm")]
    made = answers_table(table(line("erm", 0.9, 0.5), line("nfm", 0.85, 0.7)), asked)
    (told,) = made["lines"]
    assert [cell["difference"] for cell in told["columns"]] == [-0.05, 0.2]
    text = show_table(made)
    assert "| Noise? NFM – ERM | **-5.0** | **+20.0** | clearly ahead in 1, behind in 1, of 2 |" in text
    assert "Boxes?" not in text
    assert list(answers([made])) == [
        "Noise? *NFM* against *ERM*: protocol authors, ahead in 1 and behind in 1 of 2, a trade."
    ]
    assert "yet" in show_table(answers_table(table(line("erm", 0.9, 0.5)), asked))


@pytest.mark.parametrize(
    ("means", "seeds", "answer"),
    [
        ((0.9, 0.7), 3, "ahead wherever the difference is clear (1 of 2)"),
        ((0.9, 0.3), 3, "behind wherever the difference is clear (1 of 2)"),
        ((0.9, 0.5), 3, "no clear difference"),
        ((0.9, 0.7), 2, "not answered by so few seeds"),
    ],
)
def test_the_answers_are_told_in_short(means: tuple[float, float], seeds: int, answer: str) -> None:
    made = answers_table(
        table(line("erm", 0.9, 0.5), line("nfm", *means, seeds=seeds)), [Question("Noise?", "nfm", "erm")]
    )
    first = "Noise? *NFM* against *ERM*: protocol authors"
    same = {**made, "measure": "cifar/pixel/100"}
    assert list(answers([made, same])) == [f"{first} and pixel, {answer}."]
    unlike = answers_table(
        table(line("erm", 0.9, 0.9), line("nfm", 0.5, 0.95)), [Question("Noise?", "nfm", "erm")]
    )
    unlike["measure"] = "cifar/pixel/100"
    told = f"{first}, {answer}; protocol pixel, ahead in 1 and behind in 1 of 2, a trade."
    assert list(answers([made, unlike])) == [told]


@pytest.mark.parametrize(
    ("clean", "noisy", "seeds", "holds"),
    [
        (0.9, 0.9, 3, "holds. It is clearly ahead of the best other scheme in 1 of 1 noisy columns and "),
        (0.8, 0.9, 3, "does not hold. "),  # at a loss of clean accuracy
        (0.9, 0.5, 3, "does not hold. "),
        (0.9, 0.7, 3, "is not shown. "),
        (0.9, 0.9, 2, None),
    ],
)  # fmt: skip
def test_the_claim_is_held_against_the_best_other(
    clean: float, noisy: float, seeds: int, holds: str | None
) -> None:
    made = verdict_table(
        table(line("erm", 0.9, 0.5), line("noise", 0.7, 0.7), line("nfm", clean, noisy, seeds=seeds)), {"nfm"}
    )
    told = list(answers([made]))
    if holds is None:
        assert told == in_short([{"scales": {"small": {"tables": [made]}}}]) == []
        return
    (sentence,) = told
    assert sentence.startswith(f"NFM, protocol authors: the claim {holds}")
    claims = [{"id": "tiny", "title": "Tiny", "scales": {"small": {"tables": [made]}}}]
    assert in_short(claims) == [f"{CLAIM}\n", "- Tiny (`tiny`, small scale):", f"  - {sentence}"]
    assert ("σ=0.1 (NOISE)" in sentence) is (noisy < 0.7)
    assert sentence.endswith("points against ERM, which is not clear.") is (clean == 0.9)


def test_an_arm_that_extends_none_is_refused(tmp_path: Path) -> None:
    path = write_tiny(tmp_path, TINY.replace('scheme = "nfm"', 'scheme = "nfm"\nextends = "em"', 1))
    with pytest.raises(ConfigError, match=r"arms\[1\].extends: no arm is called 'em'.*did you mean 'erm'"):
        read_study(path)


def test_a_question_of_an_arm_that_is_not_there_is_refused(tmp_path: Path) -> None:
    path = write_tiny(tmp_path, TINY + '\n[[questions]]\nasks = "Noise?"\narm = "nfm"\nagainst = "em"\n')
    with pytest.raises(ConfigError, match=r"questions\[0\]: no arm is called 'em'.*did you mean 'erm'"):
        read_study(path)


@pytest.mark.parametrize("key", ["champions", "drawn", "tables"])
def test_a_study_that_names_what_it_has_not_is_refused(tmp_path: Path, key: str) -> None:
    text = TINY.replace('tables = ["cifar"]\n', "") if key == "tables" else TINY
    path = write_tiny(tmp_path, text.replace('title = "Tiny"', f'title = "Tiny"\n{key} = ["nfn"]'))
    with pytest.raises(ConfigError, match=f"{key}: no .* 'nfn'; there are"):
        read_study(path)


class TestFront:
    """The results in the README."""

    found: ClassVar[dict[str, Any]] = {
        front.STUDY: {
            "notes": ["Small scale: few images.", "Something else."],
            "scales": {"small": {"tables": [table(line("erm", 0.9, 0.5), line("nfm", 0.8, None))]}},
        }
    }

    def test_they_stand_between_their_marks(self, tmp_path: Path) -> None:
        readme, images = tmp_path / "README.md", tmp_path / "docs" / "images" / "results"
        images.mkdir(parents=True)
        name = next(iter(front.FIGURES))
        (images / name).touch()
        readme.write_text(f"before\n{front.BEGIN}\nearlier\n{front.END}\nafter\n")
        front.write_front(self.found, images, readme)
        text = readme.read_text()
        assert text.startswith(f"before\n{front.BEGIN}\n`nfm reproduce")
        assert text.endswith(f"{front.END}\nafter\n")
        assert "earlier" not in text
        assert "Small scale: few images. In bold" in text
        assert "[Results](docs/results.md)." in text
        assert "Something else" not in text
        assert "| ERM | 3 | **90.0** ± 1.0 | **50.0** ± 1.0 |\n| NFM | 3 | 80.0 ± 1.0 | – |" in text
        assert f"](docs/images/results/{name})" in text
        assert text.count("![") == 1
        front.write_front(self.found, images, readme)
        assert readme.read_text() == text

    def test_a_readme_without_marks_or_results_is_left_alone(self, tmp_path: Path) -> None:
        readme = tmp_path / "README.md"
        front.write_front(self.found, tmp_path, readme)
        assert not readme.exists()
        for text, found in (("no marks\n", self.found), (f"{front.BEGIN}\n{front.END}\n", {})):
            readme.write_text(text)
            front.write_front(found, tmp_path, readme)
            assert readme.read_text() == text


def test_a_verdict_can_be_shown_by_who_knows_the_kinds_alone() -> None:
    code = "from nfm.reproduce.kinds import show_table; show_table({'kind': 'verdicts', 'lines': []})"
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(subprocess.CalledProcessError):
        subprocess.run(
            [sys.executable, "-c", code.replace("kinds", "layout")], check=True, capture_output=True
        )


def corrupted(arm: str, mean: float, worse: list[str], seeds: int = 3) -> dict[str, Any]:
    return {
        "arm": arm, "label": arm.upper(), "accuracy": {"15 standard": {"mean": mean, "seeds": seeds}}, "worse": worse,
    }  # fmt: skip


def test_blind_spots_are_told_in_short() -> None:
    first, nfm = corrupted("erm", 0.5, []), corrupted("nfm", 0.61, ["fog", "contrast"])
    made = {
        "kind": "families",
        "measure": "corruptions-19/pixel/100",
        "baseline": "ERM",
        "lines": [first, nfm],
    }
    told = "Corruptions, mean over the 15 standard: highest NFM, 61.0%; ERM 50.0%. Clearly worse than ERM, by family: "
    assert list(answers([made])) == [f"{told}NFM (fog, contrast)."]
    assert list(answers([made | {"lines": [first, corrupted("nfm", 0.61, [])]}])) == [f"{told}none."]
    assert list(answers([made | {"lines": [first, corrupted("nfm", 0.61, [], seeds=2)]}])) == []
    more = corrupted("new", 0.7, [], seeds=1)
    (sentence,) = answers([made | {"lines": [first, nfm, more]}])
    assert "ERM 50.0%. Higher, of fewer than 3 seeds: NEW, 70.0%. Clearly" in sentence
