"""The numbers of studies: the paired test, Bayes on the toy task, feature ascent, corruption means; their tables."""

from __future__ import annotations

import io
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from studies import TINY, places_in, write_tiny

from nfm.data.toy import circles
from nfm.errors import UsageError
from nfm.evaluate.corruptions import AUTHORS, CORRUPTIONS, STANDARD
from nfm.models import build
from nfm.reproduce.bayes import bayes_accuracy, bayes_radius
from nfm.reproduce.claims import cell_table, claim_of, rows_of
from nfm.reproduce.execution import do_jobs
from nfm.reproduce.families import family_means, family_table
from nfm.reproduce.features import choose_units, climb, pre_logits, project
from nfm.reproduce.finish import finish
from nfm.reproduce.jobs import jobs_of
from nfm.reproduce.kinds import show_table
from nfm.reproduce.measuring import PGD7_CURVES
from nfm.reproduce.reading import find_study, read_study
from nfm.reproduce.records import rounded
from nfm.reproduce.rehearsal import rehearse
from nfm.reproduce.statistics import over_runs, paired_test
from nfm.reproduce.study import Arm, Line, Measure, Scale


def slow_paired_test(first: list[float], second: list[float]) -> float:
    differences = [a - b for a, b in zip(first, second, strict=True)]
    signs = itertools.product((1, -1), repeat=len(differences))
    sums = [abs(sum(s * d for s, d in zip(sign, differences, strict=True))) for sign in signs]
    return sum(total >= abs(sum(differences)) - 1e-12 for total in sums) / len(sums)


def test_the_paired_test_is_that_of_all_signs() -> None:
    first, second = [0.91, 0.90, 0.88, 0.93, 0.90], [0.89, 0.91, 0.85, 0.90, 0.88]
    assert paired_test(first, second) == slow_paired_test(first, second)
    assert paired_test(first, first) == 1.0
    assert paired_test(first, [value + 1 for value in first]) == 2 / 2**5  # the smallest there is
    assert paired_test([1.0] * 40, [0.0] * 40) == 2 / 2**40
    assert paired_test([1.0] * 39 + [0.0], [0.0] * 39 + [1.0]) == 2 * 41 / 2**40
    with pytest.raises(UsageError, match="expected 1 to 40 pairs"):
        paired_test([0.0] * 41, [0.0] * 41)


def test_bayes_is_what_its_radius_gives() -> None:
    points, labels = circles(200_000, key=7)
    inner = np.hypot(*points.T) < bayes_radius()
    error = 4 * np.sqrt(0.09 * 0.91 / 200_000)
    assert (inner == labels).mean() == pytest.approx(bayes_accuracy(), abs=error)
    assert abs(bayes_accuracy() - 0.9078) < 1e-4
    for other in (0.9, 1.1):  # any other radius is worse
        assert ((np.hypot(*points.T) < other * bayes_radius()) == labels).mean() < (inner == labels).mean()


def test_means_over_runs_have_the_spread_of_what_they_are() -> None:
    rows = [{"train_seed": seed, "accuracy": value, "n": 100} for seed, value in ((0, 0.5), (1, 0.7))]
    both, one = over_runs(rows), over_runs(rows[:1])
    assert both is not None
    assert one is not None
    assert (both.mean, both.seeds, both.lo) == (pytest.approx(0.6), 2, None)
    assert both.std == pytest.approx(0.02**0.5)
    assert one.std is None
    assert one.lo is not None
    assert one.lo < 0.5 < (one.hi or 0)
    assert over_runs([]) is None


def corrupted(arm: str, seed: int, accuracy: float, fog: float) -> list[dict[str, Any]]:
    return [
        {
            "arm": arm, "train_seed": seed, "perturbation": family, "level": severity, "n": 100, "protocol": "pixel",
            "data": "d", "source": "generated", "accuracy": fog if family == "fog" else accuracy,
        }
        for family in CORRUPTIONS
        for severity in (1, 2, 3, 4, 5)
    ]  # fmt: skip


def two_arms_corrupted(seeds: int) -> list[dict[str, Any]]:
    """Rows of two arms, of which the second is better in all families but fog."""
    erm = [row for seed in range(seeds) for row in corrupted("erm", seed, 0.5 + 0.01 * seed, 0.6)]
    return erm + [row for seed in range(seeds) for row in corrupted("nfm", seed, 0.7, 0.4 + 0.01 * seed)]


def shown_families(rows: list[dict[str, Any]]) -> tuple[dict[str, Any], str]:
    lines = [Line(Arm(name, "erm"), Scale(), "small") for name in ("erm", "nfm")]
    table = family_table(lines, Measure("corruptions-19"), rows)
    return table, show_table(table)


def test_families_that_got_worse_are_told() -> None:
    rows = two_arms_corrupted(seeds=3)
    table, shown = shown_families(rows)
    assert [line["worse"] for line in table["lines"]] == [[], ["fog"]]
    means = family_means([row for row in rows if row["arm"] == "nfm"])
    assert means["15 standard"]["mean"] == pytest.approx((14 * 0.7 + 0.41) / len(STANDARD), abs=1e-4)
    assert means["the paper's 6"]["mean"] == 0.7
    assert "fog" not in AUTHORS
    assert "- nfm: fog" in shown
    assert "| fog | **60.0** ± 0.0 | 41.0 ± 1.0 |" in shown


def test_of_two_seeds_nothing_is_called_the_best() -> None:
    _, shown = shown_families(two_arms_corrupted(seeds=2))
    assert "| fog | 60.0 ± 0.0 | 40.5 ± 0.7 |" in shown


def test_a_family_with_a_missing_severity_is_left_out() -> None:
    rows = corrupted("erm", 0, 0.5, 0.5)[1:]  # gaussian_noise without severity 1
    means = family_means(rows)
    assert rows[0]["perturbation"] not in means
    assert "15 standard" not in means
    assert "fog" in means


def test_features_climb_within_their_bounds() -> None:
    model = build("small_conv", num_classes=3, in_channels=3, image_size=8, width=0.25, seed=0).eval()
    start, units = torch.full((2, 3, 8, 8), 0.5), torch.tensor([0, 1])
    images, before, after = climb(model, start, units, ball=1.0, step=0.2, steps=20)
    assert (after > before).all()
    assert ((images - start).flatten(1).norm(dim=1) <= 1 + 1e-5).all()
    assert images.min() >= 0
    assert images.max() <= 1
    with pre_logits(model) as held:
        logits = model(images)
        assert torch.equal(model.head(held[0]), logits)
        assert torch.equal(held[0][torch.arange(2), units], after)
    still, same, end = climb(model, start, units, ball=1.0, step=0.2, steps=0)
    assert torch.equal(still, start)
    assert torch.equal(same, end)


def test_every_cell_of_a_suite_finds_its_rows_again() -> None:
    """Rows are rounded, and an eps of 1/255 is no decimal."""
    arm = Arm("erm", "erm")
    cells = [
        rounded({"arm": "erm", "perturbation": name, "level": level, "accuracy": 0.5, "ece": 0.1, "n": 10,
                 "data": "d", "protocol": "pixel", "seed": 0, "train_seed": 0})
        for name, level in (cell.key for cell in PGD7_CURVES)
    ]  # fmt: skip
    lines = [Line(arm, Scale(), "small")]
    table = cell_table(lines, Measure("pgd7-curves"), cells)
    assert all(table["lines"][0]["accuracy"])
    assert not all(cell_table(lines, Measure("pgd7-curves"), cells[:-1])["lines"][0]["accuracy"])
    assert "calibration error" in show_table(table)
    uncalibrated = cell_table(lines, Measure("pgd7-curves"), cells, calibration=False)
    assert "calibration error" not in show_table(uncalibrated)


def test_units_that_sleep_are_chosen_last() -> None:
    class Halves(torch.nn.Module):
        """Six activations of which the even ones are always 0."""

        def __init__(self) -> None:
            super().__init__()
            self.head = torch.nn.Linear(6, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(torch.arange(6) % 2 * x.flatten(1)[:, :6])

    model = Halves()
    assert sorted(choose_units(model, torch.rand(3, 1, 3, 3) + 1).tolist()) == [1, 3, 5]
    assert set(choose_units(model, torch.rand(4, 1, 3, 3) + 1).tolist()) > {1, 3, 5}
    assert choose_units(model, torch.zeros(2, 1, 3, 3)).tolist() != [1, 3]


def test_projection_leaves_what_is_inside() -> None:
    centre = torch.full((1, 1, 2, 2), 0.5)
    near, far = centre + 0.1, centre + 3.0
    assert torch.equal(project(near, centre, ball=1.0), near)
    assert project(far, centre, ball=0.5).flatten().tolist() == pytest.approx([0.75] * 4)
    assert project(far, centre, ball=9.0).max() == 1


TOY = """
title = "Toy"
figures = ["boundaries"]
[small]
time = "seconds"
seeds = [0, 1]
new_data = true
together = "toy"
[small.run.data]
name = "circles"
[small.run.model]
name = "mlp"
options = { units = 8 }
[small.run.train]
epochs = 2
batch_size = 100
[[small.measures]]
suite = "circles"
[[arms]]
name = "erm"
label = "Baseline"
scheme = "erm"
published = [85.5]
settings = [{ optimizer = { lr = 0.01 } }]
[[arms]]
name = "nfm"
scheme = "nfm"
extends = "erm"
"""


def test_a_seed_that_an_arm_was_asked_for_by_name_counts(tmp_path: Path) -> None:
    study, places = read_study(write_tiny(tmp_path)), places_in(tmp_path)
    do_jobs(jobs_of(study, "small", arms=["nfm"], seeds=[1]), places)
    assert {(row["arm"], row["train_seed"]) for row in rows_of(study, "small", places.claims)} == {("nfm", 1)}


def test_the_toy_study_from_training_to_table(tmp_path: Path) -> None:
    study, places = read_study(write_tiny(tmp_path, TOY, "toy")), places_in(tmp_path)
    do_jobs(jobs_of(study, "small"), places)
    assert [path.name for path in (places.claims / "rows" / "small").iterdir()] == ["toy.jsonl"]
    (table,) = claim_of(study, places.claims)["scales"]["small"]["tables"]
    erm, nfm = table["lines"]
    assert (erm["settings"], nfm["settings"]) == (2, 1)
    assert erm["p_value"] is None
    assert nfm["p_value"] in (0.5, 1.0)
    assert erm["further"] is None
    further = nfm["accuracy"]["mean"] - erm["accuracy"]["mean"]
    assert nfm["further"]["plain"]["difference"] == pytest.approx(further, abs=2e-4)
    tuned = nfm["tuned"]["mean"] - erm["tuned"]["mean"]
    assert nfm["further"]["tuned"]["difference"] == pytest.approx(tuned, abs=2e-4)
    assert erm["excess"] == pytest.approx(table["bayes"] - erm["accuracy"]["mean"], abs=2e-4)
    told = finish(study, "small", places)
    assert "Bayes-optimal: 90.77" in told
    assert "| Baseline | 85.5 |" in told
    assert f"nfm – Baseline: {100 * nfm['further']['plain']['difference']:+.2f} points (p = " in told
    assert (places.docs / "images/results/toy-small-boundaries.png").exists()
    boundary = next(row for row in rows_of(study, "small", places.claims) if row["kind"] == "boundary")
    assert any(value % 1 for value in boundary["inner"])  # whole percents hide where 50% is crossed


def jpeg() -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (16, 16), (200, 100, 50)).save(file, "JPEG")
    return file.getvalue()


@pytest.mark.slow
def test_imagenet_is_found_in_its_layout(tmp_path: Path) -> None:
    """A folder of the published layout, with one tiny image a class."""
    names = ["n01440764", *(f"n1{number:07d}" for number in range(999))]
    content = jpeg()
    for part, name in itertools.product(("train", "val"), names):
        folder = tmp_path / "imagenet" / part / name
        folder.mkdir(parents=True)
        (folder / "a.JPEG").write_bytes(content)
    places = places_in(tmp_path)
    study = find_study("imagenet-resnet50")
    jobs = jobs_of(study, "full", arms=["nfm_02"])
    told = rehearse(study, "full", jobs, type(places)(data_root=str(tmp_path)), command="")
    assert "resnet50, 25,557,032 parameters, input (3, 224, 224) (real examples), 1000 classes" in told
    assert "needs: imagenet/train/nXXXXXXXX/*.JPEG" in told


def test_sample_images_stand_for_imagenet_at_the_small_scale(tmp_path: Path) -> None:
    content = np.frombuffer(jpeg() * 4, np.uint8)
    size = len(content) // 4
    np.savez(
        tmp_path / "imagenette224_1500.npz", jpeg=content, offset=np.arange(5) * size, y=np.array([0, 1, 0, 1]),
        split=np.array(["train", "train", "val", "val"]), classes=np.array(["tench", "church"]),
    )  # fmt: skip
    study = find_study("imagenet-resnet50")
    jobs = jobs_of(study, "small", arms=["erm"])
    told = rehearse(study, "small", jobs, type(places_in(tmp_path))(data_root=str(tmp_path)), command="")
    assert "resnet18" in told
    assert "2 classes" in told


def test_an_arm_may_not_hide_that_it_was_not_run(tmp_path: Path) -> None:
    """A published row without a run of ours is shown as published, with nothing of ours."""
    study = read_study(write_tiny(tmp_path, TINY.replace('protocol = "pixel"', 'protocol = "authors"')))
    assert claim_of(study, tmp_path / "claims")["scales"] == {}
