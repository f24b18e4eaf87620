"""Paired tests: the same as by hand, aligned by example, corrected for their number, honest about seeds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from measured import make_run, measure
from nfm.errors import UsageError
from nfm.evaluate.metrics import mcnemar
from nfm.plots.comparison import compare, compare_one
from nfm.report.compared import compare_sources, verdicts
from nfm.report.pairs import choose_baseline, holm, pair
from nfm.report.sources import Source, read_sources


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> list[Source]:
    where = tmp_path_factory.mktemp("runs")
    make_run(where / "good", scheme="erm", n=300)
    make_run(where / "bad", scheme="worse", blur=0.6, n=300)
    return read_sources([where / "good", where / "bad"])


def rows_of(sources: list[Source]) -> list[dict[str, object]]:
    return [row for source in sources for row in source.rows]


def test_a_cell_is_mcnemar_and_a_family_a_sign_test(sources: list[Source]) -> None:
    found = pair(compare_one(rows_of(sources)), sources, "erm")
    good, bad = (source.report.outcomes for source in sources)
    cell = next(row for row in found.cells if (row["perturbation"], row["level"]) == ("white_noise", 0.2))
    ours, theirs = bad["white_noise", 0.2].correct, good["white_noise", 0.2].correct
    assert cell["p_value"] == mcnemar(ours, theirs).p_value
    assert cell["difference"] == pytest.approx(ours.mean() - theirs.mean())
    family = next(row for row in found.families if row["perturbation"] == "white_noise")
    levels = [("white_noise", level) for level in (0.1, 0.2, 0.3)]
    counts = [sum(outcomes[key].correct.astype(int) for key in levels) for outcomes in (bad, good)]
    assert family["p_value"] == mcnemar(counts[0] > counts[1], counts[1] > counts[0]).p_value
    assert family["difference"] == pytest.approx((counts[0] - counts[1]).mean() / 3)
    assert family["level"] is None


def test_a_bad_model_has_blind_spots_and_an_equal_one_has_none(sources: list[Source], tmp_path: Path) -> None:
    comparison = compare_one(rows_of(sources))
    found = pair(comparison, sources, "erm")
    spots = found.blind_spots("worse")
    assert "white_noise" in {row["perturbation"] for row in spots}
    assert found.blind_spots("erm") == []
    told = verdicts(comparison, found)
    assert len(told) == 1
    assert "worse against erm: above in 0" in told[0]
    assert "white_noise (all levels) -" in told[0]
    twin = replace(sources[0], label="twin", path=tmp_path)
    again = [sources[0], twin]
    equal = pair(compare_one(rows_of(again)), again, "erm")
    assert equal.blind_spots("twin") == []
    assert {row["difference"] for row in equal.cells} == {0.0}


def test_examples_are_aligned_by_their_ids(sources: list[Source]) -> None:
    order = np.random.default_rng(0).permutation(300)
    bad = sources[1]
    mixed = {
        key: replace(one, correct=one.correct[order], ids=one.ids[order], predicted=one.predicted[order])
        for key, one in bad.report.outcomes.items()
        if one.ids is not None
    }
    shuffled = replace(bad, report=replace(bad.report, outcomes=mixed))
    comparison = compare_one(rows_of(sources))
    same = pair(comparison, [sources[0], shuffled], "erm")
    assert same == pair(comparison, sources, "erm")
    nameless = {key: replace(one, ids=None) for key, one in mixed.items()}
    lost = replace(bad, report=replace(bad.report, outcomes=nameless))
    assert pair(comparison, [sources[0], lost], "erm") != same  # without ids the order is believed


def test_of_several_seeds_the_least_sure_pair_counts(tmp_path: Path) -> None:
    for seed in (0, 1):
        make_run(tmp_path / f"good{seed}", scheme="erm", seed=seed, n=300)
        make_run(tmp_path / f"bad{seed}", scheme="worse", seed=seed, blur=0.6 * seed, n=300)
    found = read_sources(sorted(tmp_path.iterdir()))
    row = pair(compare_one(rows_of(found)), found, "erm").cells[1]
    assert row["pairs"] == 2
    assert row["p_value"] == 1.0  # seed 0 is the same model twice
    alone = [source for source in found if source.train_seed == 1]
    assert pair(compare_one(rows_of(alone)), alone, "erm").cells[1]["p_value"] < 0.01


def test_models_without_a_common_seed_are_paired_in_order(tmp_path: Path) -> None:
    make_run(tmp_path / "a", scheme="erm", seed=0)
    make_run(tmp_path / "b", scheme="nfm", seed=5, blur=0.3)
    found = read_sources([tmp_path / "a", tmp_path / "b"])
    assert pair(compare_one(rows_of(found)), found, "erm").cells[0]["pairs"] == 1


def test_holm_is_the_slow_rule() -> None:
    values = np.random.default_rng(1).uniform(0, 0.2, 20).tolist()
    found = [row["p_holm"] for row in holm([{"p_value": value} for value in values])]
    for place, value in enumerate(values):
        steps = [(len(values) - rank) * p for rank, p in enumerate(sorted(values)) if p <= value]
        assert found[place] == pytest.approx(min(1.0, max(steps)))
    assert holm([]) == []


def test_baselines() -> None:
    assert choose_baseline(["nfm", "erm"]) == "erm"
    assert choose_baseline(["nfm", "mixup"]) == "nfm"
    assert choose_baseline(["nfm", "erm"], "nfm") == "nfm"
    with pytest.raises(UsageError, match="did you mean 'nfm'"):
        choose_baseline(["nfm", "erm"], "nmf")


def test_other_protocols_are_never_in_one_table_or_test(sources: list[Source], tmp_path: Path) -> None:
    measure(tmp_path / "authors", scheme="nfm", protocol="authors", n=300)
    both = [*sources, *read_sources([tmp_path / "authors"])]
    pixel, authors = compare(rows_of(both))
    assert {row["scheme"] for row in pair(pixel, both, "erm").cells} == {"worse"}
    assert pair(authors, both, "nfm").cells == ()
    text = compare_sources(both)
    first, second = text.split("protocol authors", 1)
    assert "nfm" not in first
    assert "worse" not in second


@pytest.mark.parametrize("style", ["text", "markdown", "latex", "csv"])
def test_every_style_tells_the_tests(sources: list[Source], style: str) -> None:
    text = compare_sources(sources, style=style)
    if style == "csv":
        assert "baseline,scheme,perturbation,level,difference,p_value,p_holm,pairs" in text
        return
    assert "McNemar" in text
    assert "blind spots: " in text
    assert "*" in text
    if style == "latex":
        table, _ = text.split(r"\end{tabular}")
        assert all(line.startswith("%") or not line for line in text[len(table) + 13 :].splitlines())


def test_rows_alone_have_a_table_and_no_tests(sources: list[Source]) -> None:
    bare = [replace(source, report=replace(source.report, outcomes={})) for source in sources]
    text = compare_sources(bare)
    assert "accuracy in %" in text
    assert "McNemar" not in text


def test_columns_go_on_below_where_the_terminal_ends(sources: list[Source]) -> None:
    narrow = compare_sources(sources, width=60)
    assert max(map(len, narrow.splitlines()[1:8])) <= 60
    assert narrow.count("scheme") > compare_sources(sources).count("scheme")
