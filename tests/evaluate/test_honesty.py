"""Three dishonest models are caught in the table; an honest one raises no flag."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nfm.data.examples import Examples
from nfm.errors import UsageError
from nfm.evaluate import FGSM, PGD, Cell, Report, UniformNoise, attack_suite, evaluate, load_report
from nfm.evaluate.honesty import flag_attacks
from nfm.evaluate.outcomes import Outcomes
from nfm.randomness import torch_generator

SUITE = attack_suite(["16/255"], queries=200)


@pytest.fixture(scope="module")
def examples() -> Examples:
    centres = 0.35 + 0.3 * torch.rand(6, 1, 8, 8, generator=torch_generator(0))
    labels = torch.arange(1000) % 6
    noise = 0.15 * torch.randn(1000, 1, 8, 8, generator=torch_generator(1))
    images = ((centres[labels] + noise).clamp(0, 1) * 255).to(torch.uint8)
    return Examples(images, labels, torch.arange(1000))


@pytest.fixture(scope="module")
def honest(examples: Examples) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Flatten(), nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 6))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    x = examples.images.float() / 255
    for _ in range(80):
        optimizer.zero_grad()
        F.cross_entropy(model(x), examples.labels).backward()
        optimizer.step()
    return model


def quantised(model: nn.Module) -> Callable[[Tensor], Tensor]:
    return lambda x: model(torch.round(x * 20) / 20)  # no gradient at all


def loud(model: nn.Module) -> Callable[[Tensor], Tensor]:
    return lambda x: model(x) * 1e5  # the cross-entropy saturates and with it its gradient


def stochastic(model: nn.Module) -> Callable[[Tensor], Tensor]:
    generator = torch_generator(3)

    def noisy(x: Tensor) -> Tensor:
        logits = model(x)
        return logits + torch.randn(logits.shape, generator=generator)

    return noisy


def softmax(model: nn.Module) -> Callable[[Tensor], Tensor]:
    return lambda x: model(x).softmax(1)


def test_an_honest_model_raises_no_flag(honest: nn.Module, examples: Examples) -> None:
    report = evaluate(honest, examples, SUITE)
    assert report.flags == []
    assert report.row("pgd", 1.0)["accuracy"] < 0.01
    assert report.row("pgd7", 16 / 255)["level_255"] == pytest.approx(16)
    assert report.row("pgd7", 16 / 255)["settings"]["steps"] == 7


@pytest.mark.parametrize(
    ("mask", "flags"),
    [
        (
            quantised,
            ["zero gradients (100%)", "black box stronger than white box", "eps=1 does not break the model"],
        ),
        (loud, ["black box stronger than white box", "eps=1 does not break the model"]),
    ],
)
def test_gradient_masking_is_caught(
    honest: nn.Module,
    examples: Examples,
    mask: Callable[[nn.Module], Callable[[Tensor], Tensor]],
    flags: list[str],
) -> None:
    report = evaluate(mask(honest), examples, SUITE)
    for flag in flags:
        assert flag in report.flags
        assert flag in report.table()


@pytest.mark.parametrize(("fault", "flag"), [(stochastic, "stochastic model"), (softmax, "softmax output")])
def test_a_stochastic_model_and_a_softmax_are_refused_and_flagged_when_forced(
    honest: nn.Module,
    examples: Examples,
    fault: Callable[[nn.Module], Callable[[Tensor], Tensor]],
    flag: str,
) -> None:
    with pytest.raises(UsageError, match=flag):
        evaluate(fault(honest), examples, SUITE)
    report = evaluate(fault(honest), examples, SUITE[:2], force=True)
    assert all(flag in row["flags"] for row in report.rows)


def made(cells: list[Cell], right: list[int], n: int = 1000) -> Report:
    """Return a report in which the first `right` of n examples stand, cell by cell."""
    report = Report({})
    for cell, count in zip(cells, right, strict=True):
        correct = np.arange(n) < count
        numbers = np.zeros(n)
        row = {
            "perturbation": cell.perturbation.label,
            "level": cell.level,
            "accuracy": count / n,
            "flags": [],
        }
        report.add(row, Outcomes(np.zeros(n, dtype=np.int64), correct, numbers, numbers, numbers))
    return report


@pytest.mark.parametrize(
    ("cells", "right", "flag"),
    [
        ([Cell(FGSM(), 0.1), Cell(PGD(), 0.1)], [300, 400], "FGSM stronger than PGD"),
        ([Cell(UniformNoise(), 0.1), Cell(PGD(), 0.1)], [300, 400], "black box stronger than white box"),
        ([Cell(PGD(), 0.05), Cell(PGD(), 0.1)], [300, 400], "accuracy rises with eps"),
        ([Cell(PGD(), 0.1), Cell(PGD(), 1.0)], [300, 20], "eps=1 does not break the model"),
    ],
)
def test_each_suspicion(cells: list[Cell], right: list[int], flag: str) -> None:
    report = made(cells, right)
    assert flag_attacks(report, cells, dict)
    assert report.rows[1]["flags"] == [flag]
    assert report.rows[0]["flags"] == []
    assert not flag_attacks(made(cells, [400, 5]), cells, dict)


def test_attacks_of_different_norms_are_not_compared() -> None:
    cells = [Cell(FGSM(), 0.1), Cell(PGD("l2"), 0.1)]
    assert not flag_attacks(made(cells, [300, 400]), cells, dict)


def test_a_difference_of_two_examples_is_no_suspicion() -> None:
    cells = [Cell(FGSM(), 0.1), Cell(PGD(), 0.1)]
    assert not flag_attacks(made(cells, [300, 302]), cells, dict)


def test_flags_of_the_whole_reach_the_saved_rows(
    honest: nn.Module, examples: Examples, tmp_path: Path
) -> None:
    report = evaluate(quantised(honest), examples, SUITE[:2], save_to=tmp_path)
    assert "zero gradients (100%)" in report.rows[1]["flags"]
    assert load_report(tmp_path).rows == report.rows
    again = evaluate(quantised(honest), examples, SUITE[:2], save_to=tmp_path)
    assert again.rows == report.rows == load_report(tmp_path).rows


def test_flags_do_not_depend_on_how_cells_are_spread_over_calls(
    honest: nn.Module, examples: Examples, tmp_path: Path
) -> None:
    few, model = examples.subset(torch.arange(200)), quantised(honest)
    at_once = evaluate(model, few, SUITE)
    assert "black box stronger than white box" in at_once.row("pgd", 16 / 255)["flags"]
    for cell in SUITE:
        evaluate(model, few, [cell], save_to=tmp_path, flags=["told once"] if cell is SUITE[0] else [])
    assert load_report(tmp_path).row("clean", 0.0)["flags"] == ["told once", "n<1000"]
    for cell in SUITE[1:]:
        again = evaluate(model, few, [cell], save_to=tmp_path).rows[0]["flags"]
        on_disk = load_report(tmp_path).row(*cell.key)["flags"]
        assert sorted(again) == sorted(on_disk) == sorted(at_once.row(*cell.key)["flags"])
    resumed = evaluate(model, few, [SUITE[0]], resume_from=tmp_path)
    assert sorted(resumed.flags) == ["n<1000", "told once"]


def test_attacks_are_not_part_of_the_authors_protocol(honest: nn.Module, examples: Examples) -> None:
    with pytest.raises(UsageError, match="use protocol 'pixel'"):
        evaluate(honest, examples, SUITE, protocol="authors")
