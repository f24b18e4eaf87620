"""Figures of studies: what is drawn of their rows, and what is told beside it."""

from __future__ import annotations

from typing import Any

import pytest

from nfm.reproduce.figures import FIGURES

pytest.importorskip("matplotlib")


def toy(arm: str, accuracy: float, seed: int = 0) -> dict[str, Any]:
    return {"kind": "toy", "arm": arm, "accuracy": accuracy, "train_seed": seed}


def boundary(arm: str, *, of: str = "", published: tuple[float, ...] = ()) -> dict[str, Any]:
    return {
        "kind": "boundary", "arm": arm, "scheme": f"label of {arm}", "of": of, "published": published, "train_seed": 0,
        "extent": 2.0, "side": 2, "inner": [10, 90, 20, 80], "points": [[0.0, 0.0], [1.0, 1.0]], "labels": [1, 0],
        "test_points": [[0.5, 0.5]], "test_labels": [0],
    }  # fmt: skip


def test_a_boundary_tells_its_own_accuracy_the_mean_and_the_papers() -> None:
    rows = [toy("erm", 0.9), toy("erm", 0.8, seed=1), toy("nfm", 0.7), toy("nfm#1", 0.1)]
    drawn = [boundary("erm", published=(85.5,)), boundary("nfm"), boundary("nfm#1", of="nfm")]
    ((name, figure),) = FIGURES["boundaries"]("Toy", [*rows, *drawn])
    assert name == "boundaries"
    assert figure.get_suptitle().startswith("Toy: networks of seed 0\naccuracy in %: ")
    assert "mean of 2 seeds" in figure.get_suptitle()
    titles = [axes.get_title() for axes in figure.axes[1:]]
    assert titles == [
        "label of erm\ndrawn 90.0, mean 85.0, paper 85.5", "label of nfm\ndrawn 70.0, mean 70.0", "",
    ]  # fmt: skip
    assert not list(FIGURES["boundaries"]("Toy", rows))


def run(*, subset: int, watch: int) -> dict[str, Any]:
    return {"kind": "run", "scheme": "NFM", "config": {"data": {"subset": subset}}, "watch": watch}


EPOCHS = [
    {
        "kind": "epoch", "scheme": "NFM", "arm": "nfm", "epoch": epoch, "train_loss": 2.0, "validation_loss": 3.0,
        "probe_accuracy": 0.4 + epoch / 10, "validation_accuracy": 0.2 + epoch / 10,
    }
    for epoch in (0, 1)
]  # fmt: skip


def test_training_is_drawn_as_errors_of_so_many_images() -> None:
    ((name, figure),) = FIGURES["training"]("title", [run(subset=5000, watch=1000), *EPOCHS])
    assert (name, figure.get_suptitle()) == ("training", "title")
    train, test = figure.axes
    assert train.get_title(loc="left") == "training error in % (256 images)"
    assert test.get_title(loc="left") == "test error in % (1,000 images)"
    assert train.get_lines()[0].get_ydata().tolist() == pytest.approx([60, 50])
    assert test.get_lines()[0].get_ydata().tolist() == pytest.approx([80, 70])
    assert not list(FIGURES["training"]("title", [run(subset=5000, watch=1000)]))


@pytest.mark.parametrize(
    ("runs", "titles"),
    [
        ([run(subset=0, watch=0)], ["training error in % (256 images)", "validation error in %"]),
        (
            [run(subset=48, watch=20), run(subset=0, watch=30)],
            ["training error in % (48 to 256 images)", "test error in % (20 to 30 images)"],
        ),
        (
            [
                {"kind": "run", "scheme": "NFM", "config": chosen, "watch": 20}
                for chosen in ({"data.subset": 48}, {})
            ],
            ["training error in % (48 to 256 images)", "test error in % (20 images)"],
        ),
    ],
)
def test_images_are_counted_and_named_by_what_was_watched(runs: list[Any], titles: list[str]) -> None:
    ((_, figure),) = FIGURES["training"]("title", [*runs, *EPOCHS])
    assert [axes.get_title(loc="left") for axes in figure.axes] == titles
