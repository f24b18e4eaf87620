"""Figures of studies: what is drawn of their rows, and what is told beside it."""

from __future__ import annotations

from typing import Any

import pytest

from nfm.reproduce.figures import FIGURES

pytest.importorskip("matplotlib")


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
    ],
)
def test_images_are_counted_and_named_by_what_was_watched(runs: list[Any], titles: list[str]) -> None:
    ((_, figure),) = FIGURES["training"]("title", [*runs, *EPOCHS])
    assert [axes.get_title(loc="left") for axes in figure.axes] == titles
