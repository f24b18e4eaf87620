"""Models at fault: NaN in logits and gradients, gradients cut off, other dtypes, inputs written to, batches mixed."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from nfm.data.examples import Examples
from nfm.errors import NumericalError, ShapeError, UsageError
from nfm.evaluate import APGD, FGSM, PGD, Cell, Clean, Square, WhiteNoise, cells, evaluate
from nfm.evaluate.checks import predict
from nfm.evaluate.outcomes import Outcomes
from nfm.randomness import torch_generator

CLEAN = Cell(Clean(), 0.0)
WEIGHT = torch.ones(64) / 8


def score(x: Tensor) -> Tensor:
    return (x.flatten(1) - 0.5).to(torch.float32) @ WEIGHT


def two(z: Tensor) -> Tensor:
    return torch.stack([-z, z], 1)


def honest(x: Tensor) -> Tensor:
    return two(score(x))


def without_gradient(x: Tensor) -> Tensor:
    """Have a NaN for a gradient, and finite logits."""
    z = score(x)
    return two(z + torch.where(z > 1e9, (-z * z - 1).sqrt(), 0))


def without_number_near_the_boundary(x: Tensor) -> Tensor:
    z = score(x)
    return two(torch.where(z.abs() < 0.1, torch.nan, z))


def flat_for_class_1(x: Tensor) -> Tensor:
    z = score(x)
    return two(torch.where(z > 0, z.detach(), z))


def make(gap: float, n: int = 1000) -> Examples:
    """Return grey images of two classes, sorted by class, `gap` above or below 0.5."""
    labels = torch.arange(n) * 2 // n
    grain = 0.01 * torch.randn(n, 1, 8, 8, generator=torch_generator(0))
    images = 0.5 + gap * (2 * labels.float() - 1).view(-1, 1, 1, 1) + grain
    return Examples(images.clamp(0, 1), labels, torch.arange(n))


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize("attack", [FGSM, PGD, lambda norm: APGD(norm, steps=5)], ids=["fgsm", "pgd", "apgd"])
def test_a_gradient_that_is_not_finite_is_flagged(attack: Callable[[str], PGD], norm: str) -> None:
    suite = cells(attack(norm), [0.1 if norm == "linf" else 1.0])
    assert evaluate(without_gradient, make(0.04), suite).flags == ["NaN gradients (100%)"]
    assert evaluate(honest, make(0.04), suite).flags == []
    assert evaluate(honest, make(0.04), suite).rows[0]["accuracy"] < 0.1


def test_logits_that_are_not_finite_are_wrong() -> None:
    logits = torch.tensor([[torch.nan, 1.0], [torch.inf, 0.0], [2.0, -torch.inf], [2.0, 1.0]])
    outcomes = Outcomes.of(logits, torch.zeros(4, dtype=torch.int64))
    assert outcomes.correct.tolist() == [False, False, False, True]
    assert outcomes.predicted.tolist() == [-1, -1, -1, 0]
    assert outcomes.flags() == ["NaN logits (75%)"]
    assert Outcomes.of(logits[3:], torch.zeros(1, dtype=torch.int64)).flags() == []


@pytest.mark.parametrize(
    "attack", [PGD(), PGD("l2"), APGD(steps=5), Square(queries=5)], ids=["pgd", "l2", "apgd", "square"]
)
def test_an_attack_leaves_alone_what_has_no_logits(attack: PGD) -> None:
    x, y = make(0.04).images[:8], torch.zeros(8, dtype=torch.int64)
    assert torch.equal(attack(lambda x: honest(x) * torch.nan, x, y, torch.arange(8), 0.1, seed=0), x)
    assert not torch.equal(attack(honest, x, y, torch.arange(8), 0.1, seed=0), x)


def test_nan_logits_are_flagged_cell_by_cell_with_their_share() -> None:
    suite = [CLEAN, *cells(PGD(), [0.05]), *cells(APGD(steps=10), [0.05]), *cells(Square(queries=50), [0.05])]
    with pytest.raises(NumericalError, match="not finite"):
        evaluate(without_number_near_the_boundary, make(0.04), suite)
    rows = evaluate(without_number_near_the_boundary, make(0.04), suite, force=True).rows
    assert rows[0]["flags"] == []
    assert rows[0]["accuracy"] == 1
    for row in rows[1:]:
        assert any(flag.startswith("NaN logits (") for flag in row["flags"])
        assert row["accuracy"] < 0.5
    alone = evaluate(lambda x: honest(x) * torch.nan, make(0.04), [CLEAN], force=True)
    assert alone.rows[0]["accuracy"] == 0
    assert "NaN logits (100%)" in alone.rows[0]["flags"]


def test_an_honest_margin_beyond_an_l2_eps_of_1_is_no_suspicion() -> None:
    report = evaluate(honest, make(0.4), cells(PGD("l2"), [1.0]))
    assert report.flags == []
    assert report.rows[0]["accuracy"] == 1
    flat = evaluate(flat_for_class_1, make(0.4), cells(PGD(), [1.0]))
    assert "eps=1 does not break the model" in flat.flags


def test_gradients_are_looked_at_beyond_the_first_batch() -> None:
    report = evaluate(flat_for_class_1, make(0.04), cells(PGD(), [0.1]), batch_size=100)
    assert report.flags == ["zero gradients (50%)"]


def test_a_model_that_detaches_its_input_is_flagged() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 2))

    def cut(x: Tensor) -> Tensor:
        return model(x.detach())

    flags = evaluate(cut, make(0.04), cells(PGD(), [0.1])).flags
    assert flags == ["zero gradients (100%)"]
    with pytest.raises(UsageError, match="black-box"):
        evaluate(lambda x: model(x).detach(), make(0.04), cells(PGD(), [0.1]))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_models_of_other_dtypes_are_measured(dtype: torch.dtype) -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 2))
    with torch.no_grad():
        model[1].weight.copy_(torch.stack([-WEIGHT, WEIGHT]))
        model[1].bias.copy_(torch.tensor([4.0, -4.0]))
    suite = [CLEAN, *cells(PGD(), [0.1]), *cells(APGD(steps=5), [0.1]), *cells(Square(queries=5), [0.1])]
    expected = [row["accuracy"] for row in evaluate(model, make(0.04), suite).rows]
    found = [row["accuracy"] for row in evaluate(model.to(dtype), make(0.04), suite).rows]
    assert found[:3] == expected[:3] == [1, 0, 0]
    assert found[3] == pytest.approx(expected[3], abs=0.1)
    assert predict(model, make(0.04).images[:2]).dtype == torch.float32


def test_float64_logits_are_measured() -> None:
    suite = [*cells(PGD(), [0.1]), *cells(APGD(steps=5), [0.1]), *cells(Square(queries=5), [0.1])]
    wide = evaluate(lambda x: honest(x).double(), make(0.04), suite)
    assert [row["accuracy"] for row in wide.rows] == [
        row["accuracy"] for row in evaluate(honest, make(0.04), suite).rows
    ]


def test_a_batch_norm_without_statistics_is_refused_by_its_name() -> None:
    norm = nn.BatchNorm1d(64, track_running_stats=False)
    with pytest.raises(UsageError, match="output depends on the batch"):
        evaluate(nn.Sequential(nn.Flatten(), norm, nn.Linear(64, 2)), make(0.04), [CLEAN])
    assert evaluate(nn.Sequential(nn.Flatten(), nn.BatchNorm1d(64), nn.Linear(64, 2)), make(0.04), [CLEAN])


def test_a_model_may_write_to_its_input() -> None:
    suite = [*cells(WhiteNoise(), [0.1]), *cells(PGD(), [0.03])]
    writing = evaluate(lambda x: honest(x.mul_(0.5).add_(0.25)), make(0.04), suite)
    reading = evaluate(lambda x: honest(x * 0.5 + 0.25), make(0.04), suite)
    assert writing.flags == reading.flags == []
    for key, outcomes in writing.outcomes.items():
        assert (outcomes.nll == reading.outcomes[key].nll).all()


def test_a_model_of_other_images_is_told_the_shape() -> None:
    model = nn.Sequential(nn.Conv2d(3, 2, 8), nn.Flatten())
    with pytest.raises(ShapeError, match=r"takes pixels of shape \(16, 1, 8, 8\)"):
        evaluate(model, make(0.04), [CLEAN])
