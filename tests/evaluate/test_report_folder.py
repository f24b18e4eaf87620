"""A report on disk: torn lines, rows of other suites, strips to look at, work still to be done."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from nfm.data.examples import Examples
from nfm.errors import DataError, UsageError
from nfm.evaluate import FGSM, PGD, PGD7, Cell, Clean, Strong, WhiteNoise, cells, evaluate, load_report
from nfm.evaluate.report import Folder
from nfm.evaluate.strip import SIDE, choose_shown
from nfm.randomness import torch_generator

WEIGHTS = torch.randn(3 * 8 * 8, 4, generator=torch_generator(0))
NOISE = [Cell(Clean(), 0.0), *cells(WhiteNoise(), [0, 0.1, 0.2])]


def linear(x: Tensor) -> Tensor:
    return (x[:, :, :8, :8].flatten(1) - 0.5) @ WEIGHTS


def quantised(x: Tensor) -> Tensor:
    return linear(torch.round(x * 4) / 4)


def make(n: int = 60, side: int = 8) -> Examples:
    images = torch.randint(0, 256, (n, 3, side, side), generator=torch_generator(1), dtype=torch.uint8)
    return Examples(images, torch.arange(n) % 4, torch.arange(n) + 7)


def test_a_torn_last_line_is_measured_again(tmp_path: Path) -> None:
    evaluate(linear, make(), NOISE, save_to=tmp_path)
    whole = (tmp_path / "rows.jsonl").read_bytes()
    (tmp_path / "rows.jsonl").write_bytes(whole[:-20])
    evaluate(linear, make(), NOISE, save_to=tmp_path)
    assert (tmp_path / "rows.jsonl").read_bytes() == whole


def test_a_refused_model_leaves_the_report_that_it_was_to_overwrite(tmp_path: Path) -> None:
    evaluate(linear, make(), NOISE, save_to=tmp_path)
    whole = (tmp_path / "rows.jsonl").read_bytes()
    with pytest.raises(UsageError, match="refused"):
        evaluate(lambda x: linear(x).softmax(1), make(), NOISE, save_to=tmp_path, overwrite=True)
    assert (tmp_path / "rows.jsonl").read_bytes() == whole
    evaluate(quantised, make(), NOISE, save_to=tmp_path, overwrite=True)  # the control
    assert (tmp_path / "rows.jsonl").read_bytes() != whole


def test_late_flags_leave_rows_of_other_suites_alone(tmp_path: Path) -> None:
    evaluate(quantised, make(), NOISE, save_to=tmp_path)
    evaluate(quantised, make(), cells(FGSM(), [0.1]), save_to=tmp_path)
    rows = load_report(tmp_path).rows
    assert [row["perturbation"] for row in rows] == ["clean"] + ["white_noise"] * 3 + ["fgsm"]
    assert "zero gradients (100%)" in rows[-1]["flags"]


def test_outcomes_know_their_examples(tmp_path: Path) -> None:
    examples = make()
    order = torch.randperm(60, generator=torch_generator(2))
    saved = evaluate(linear, examples.subset(order), NOISE, save_to=tmp_path)
    assert np.array_equal(load_report(tmp_path).outcomes["white_noise", 0.1].ids, examples.ids[order].numpy())
    assert saved.outcomes["clean", 0].ids is not None


def test_strips_show_what_the_model_saw(tmp_path: Path) -> None:
    examples = make()
    report = evaluate(linear, examples, [*NOISE, *cells(FGSM(), [0.1])], save_to=tmp_path)
    folder = Folder(tmp_path)
    clean, noisy = folder.read_strip(("clean", 0.0)), folder.read_strip(("white_noise", 0.2))
    assert clean.labels.tolist() == [0, 1, 2, 3]
    assert clean.ids.tolist() == [7, 8, 9, 10]
    assert np.array_equal(clean.images, examples.images[:4].numpy())
    assert not np.array_equal(noisy.images, clean.images)
    expected = report.outcomes["white_noise", 0.2]
    assert np.array_equal(noisy.predicted, expected.predicted[:4])
    assert np.allclose(noisy.confidence, expected.confidence[:4])
    assert not folder.has_strip(("fgsm", 0.1))  # another picture for each model


def test_shown_examples_do_not_depend_on_the_order_and_large_ones_are_shrunk(tmp_path: Path) -> None:
    examples = make(20, side=2 * SIDE)
    mixed = examples.subset(torch.randperm(20, generator=torch_generator(3)))
    assert torch.equal(examples.ids[choose_shown(examples)], mixed.ids[choose_shown(mixed)])
    evaluate(linear, examples, NOISE[:1], save_to=tmp_path)
    assert Folder(tmp_path).read_strip(("clean", 0.0)).images.shape == (4, 3, SIDE, SIDE)


def test_vectors_have_no_strips(tmp_path: Path) -> None:
    vectors = Examples(
        torch.rand(20, 192, generator=torch_generator(4)), torch.arange(20) % 4, torch.arange(20)
    )
    evaluate(lambda x: x @ WEIGHTS, vectors, NOISE, save_to=tmp_path)
    assert not (tmp_path / "strips").exists()


def test_damaged_files_are_refused_by_name(tmp_path: Path) -> None:
    evaluate(linear, make(), NOISE[:1], save_to=tmp_path)
    file = next((tmp_path / "outcomes").iterdir())
    file.write_bytes(b"<html>")
    with pytest.raises(DataError, match=r"clean-0\.0\.npz: expected the outcomes"):
        load_report(tmp_path)
    for text in ("[" * 100_000, "[]", "{"):
        (tmp_path / "identity.json").write_text(text)
        with pytest.raises(DataError, match=r"identity\.json: expected the identity"):
            load_report(tmp_path)


def test_progress_counts_the_work_still_to_be_done(tmp_path: Path) -> None:
    told: list[tuple[str, int, int]] = []

    def progress(label: str, done: int, total: int) -> None:
        told.append((label, done, total))

    evaluate(linear, make(), NOISE[:1], save_to=tmp_path)
    suite = [*NOISE, *cells(PGD7(), [0.1])]
    evaluate(linear, make(), suite, save_to=tmp_path, batch_size=30, progress=progress)
    total = 60 * (2 + PGD7().passes())  # clean is measured, and level 0 is clean
    assert [entry[1] for entry in told] == [30, 60, 90, 120, 120 + 30 * PGD7().passes(), total]
    assert {entry[2] for entry in told} == {total}
    assert told[0][0] == "white_noise 0.1"
    assert (
        WhiteNoise().passes()
        < FGSM().passes()
        < PGD7().passes()
        < PGD(restarts=2).passes()
        < Strong().passes()
    )
