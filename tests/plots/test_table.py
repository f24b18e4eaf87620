"""Tables: the paper's layout, honest bands, and nothing side by side that may not be compared."""

import csv
import io
from typing import Any

import pytest

from nfm.errors import DataError, UsageError
from nfm.plots import compare, compare_one, table
from nfm.plots.table import STYLES, show_column, show_level


def row(scheme: str, perturbation: str, level: float, accuracy: float, **other: Any) -> dict[str, Any]:
    about = {"n": 10_000, "protocol": "pixel", "data": "cifar10", "ids": "ab", "seed": 0, "flags": []}
    found = {"accuracy": accuracy, "lo": accuracy - 0.01, "hi": accuracy + 0.02}
    return about | found | {"scheme": scheme, "perturbation": perturbation, "level": level} | other


ROWS = [
    row("erm", "salt_and_pepper", 0.1, 0.552),
    row("erm", "clean", 0.0, 0.946),
    row("erm", "white_noise", 0.3, 0.563),
    row("erm", "white_noise", 0.1, 0.904),
    row("n_f&m", "clean", 0.0, 0.954, train_seed=0),
    row("n_f&m", "clean", 0.0, 0.964, train_seed=1),
    row("n_f&m", "white_noise", 0.1, 0.95, train_seed=0),
    row("n_f&m", "white_noise", 0.1, 0.95, train_seed=1),
]


def test_text_is_the_papers_layout() -> None:
    title, _, head, _, *body = table(ROWS).splitlines()
    assert title == "accuracy in %: cifar10, 10000 examples, protocol pixel"
    assert head.split() == ["scheme", "clean", "σ=0.1", "σ=0.3", "γ=0.1"]
    assert body[0].split() == ["erm", "94.6", "90.4", "56.3", "55.2"]
    assert body[1].split("  ")[-1].strip() == "[54.2, 57.2]"
    assert body[2].split() == ["n_f&m", "95.9", "95.0", "–", "–"]
    assert body[3].split() == ["±", "0.7", "±", "0.0"]
    assert body[4].startswith("note: one seed")
    assert body[4].endswith("(erm)")


@pytest.mark.parametrize("style", STYLES)
def test_one_seed_has_no_plus_minus(style: str) -> None:
    assert "±" not in table(ROWS[:4], style=style)
    assert r"\pm" not in table(ROWS[:4], style=style)


def test_markdown() -> None:
    lines = table(ROWS, style="markdown").splitlines()
    assert lines[2] == "| scheme | clean | σ=0.1 | σ=0.3 | γ=0.1 |"
    assert (
        lines[4] == "| erm | 94.6 [93.6, 96.6] | 90.4 [89.4, 92.4] | 56.3 [55.3, 58.3] | 55.2 [54.2, 57.2] |"
    )
    assert lines[5].startswith("| n_f&m | 95.9 ± 0.7 |")
    assert "| a\\|b |" in table([row("a|b", "clean", 0, 0.5)], style="markdown")


def test_latex() -> None:
    made = table(ROWS, style="latex", spread=False)
    assert r"\begin{tabular}{l | c | c c | c}" in made
    assert r"Scheme & \multicolumn{1}{c}{Clean (\%)} & \multicolumn{2}{c}{$\sigma$ (\%)}" in made
    assert r"n\_f\&m & 95.9 & 95.0 & -- & -- \\" in made
    assert r"95.9 $\pm$ 0.7" in table(ROWS, style="latex")


def test_csv_has_every_digit() -> None:
    read = list(csv.DictReader(io.StringIO(table(ROWS, style="csv"))))
    assert len(read) == 6
    assert read[0]["accuracy"] == "0.946"
    assert [line["seeds"] for line in read] == ["1"] * 4 + ["2"] * 2


def test_other_columns_come_last_and_small_levels_are_in_255ths() -> None:
    rows = [row("erm", "pgd7", 8 / 255, 0.1), row("erm", "blur", 1.5, 0.2), *ROWS[:4]]
    assert table(rows).splitlines()[2].endswith("γ=0.1         PGD-7 l∞ ε=8/255  blur=1.5")
    latex = table(rows, style="latex")
    assert "$8/255$ & $1.5$" in latex
    assert r"{PGD-7 l$\infty$ (\%)}" in latex


@pytest.mark.parametrize(
    ("level", "told"),
    [
        (0.003922, "1/255"), (0.007843, "2/255"), (0.062745, "16/255"),  # rows of studies keep six digits
        (0.00392, "0.00392"), (0.0314, "0.0314"), (0.05, "0.05"), (0.2, "0.2"), (1.5e-7, "1.5e-07"),
    ],
)  # fmt: skip
def test_a_rounded_255th_is_known_and_its_neighbours_are_not(level: float, told: str) -> None:
    assert show_level(level) == told


def test_a_column_of_an_attack_tells_its_norm() -> None:
    assert show_column(("pgd7", 0.003922)) == "PGD-7 l∞ ε=1/255"
    assert show_column(("pgd7(norm=l2)", 0.05)) == "PGD-7 l2 ε=0.05"
    assert show_column(("pgd(norm=l2,steps=50)", 0.5)) == "PGD l2 (steps=50) ε=0.5"
    assert show_column(("motion_blur", 3)) == "motion_blur=3"


def test_level_0_of_any_noise_is_clean() -> None:
    found = compare_one([row("erm", "white_noise", 0.0, 0.9), row("erm", "white_noise", 0.1, 0.8)])
    assert found.columns == (("clean", 0.0), ("white_noise", 0.1))
    assert found.levels("white_noise") == [0.0, 0.1]


@pytest.mark.parametrize(
    ("name", "value"), [("protocol", "authors"), ("data", "cifar100"), ("n", 100), ("ids", "cd"), ("seed", 1)]
)
def test_what_may_not_be_compared_is_told_apart(name: str, value: object) -> None:
    rows = [*ROWS, row("other", "clean", 0.0, 0.99, **{name: value})]
    first, second = compare(rows)
    assert first.schemes == ("erm", "n_f&m")
    assert second.schemes == ("other",)
    assert table(rows).count("scheme ") == 2
    with pytest.raises(UsageError, match=f"different {name}: .*{value}"):
        compare_one(rows)


def test_flags_become_notes() -> None:
    rows = [
        row("a", "clean", 0, 0.5, flags=["n<1000"]),
        row("b", "clean", 0, 0.5, flags=["n<1000", "softmax output"]),
    ]
    assert "note: n<1000\nnote: softmax output (b)" in table(rows)
    assert "- softmax output (b)" in table(rows, style="markdown")
    assert "% softmax output (b)" in table(rows, style="latex")


def test_pgd_alone_is_noted() -> None:
    rows = [row("a", "pgd7(norm=l2)", 0.5, 0.5)]
    assert "PGD alone says little" in table(rows)
    assert "PGD alone" not in table([*rows, row("a", "apgd", 8 / 255, 0.4)])
    assert "PGD alone" not in table(ROWS)


def test_generated_corruptions_are_noted() -> None:
    rows = [row("a", "fog", 1.0, 0.5, settings={"family": "fog", "source": "generated"})]
    assert "note: corruptions: generated" in table(rows)


def test_few_seeds_are_noted() -> None:
    rows = [row("a", "clean", 0.0, 0.5, train_seed=seed) for seed in range(3)]
    assert "note: one seed" in table(rows[:1])
    assert "note: two seeds" in table(rows[:2])
    assert "seed" not in table(rows)


def test_a_wide_text_goes_on_below() -> None:
    made = table(ROWS, width=40)
    assert max(len(line) for line in made.splitlines()[1:] if not line.startswith("note")) <= 40
    assert made.count("scheme") > 1


def test_bad_rows_are_refused() -> None:
    for value in ("0.5", None, float("nan")):
        with pytest.raises(DataError, match="expected numbers for accuracy"):
            table([row("a", "clean", 0.0, 0.5) | {"accuracy": value}])
    with pytest.raises(UsageError, match="got none"):
        table([])
    with pytest.raises(DataError, match="without accuracy"):
        table([{key: value for key, value in ROWS[0].items() if key != "accuracy"}])
    with pytest.raises(DataError, match="disagree"):
        table([*ROWS, row("erm", "clean", 0.0, 0.5)])
    with pytest.raises(UsageError, match="did you mean 'markdown'"):
        table(ROWS, style="markdwn")
