"""Calibration against slow loops, known answers, scipy and scikit-learn."""

import math

import numpy as np
import pytest
import torch
from scipy import optimize
from sklearn.metrics import brier_score_loss, log_loss

from nfm.errors import ShapeError, UsageError
from nfm.evaluate.calibration import (
    debiased_calibration_error,
    expected_calibration_error,
    fit_temperature,
    reliability_rows,
    signed_calibration_error,
)
from nfm.evaluate.outcomes import Outcomes
from nfm.randomness import numpy_generator, torch_generator


def slow_error(confidence: np.ndarray, correct: np.ndarray, bins: int) -> float:
    total = 0.0
    for index in range(bins):
        low, high = index / bins, (index + 1) / bins
        inside = [
            (p, hit) for p, hit in zip(confidence, correct, strict=True) if low <= p < high or p == high == 1
        ]
        if inside:
            total += abs(sum(p for p, _ in inside) - sum(hit for _, hit in inside))
    return total / len(confidence)


def calibrated(n: int, key: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return confidences and outcomes of a model that is calibrated by construction."""
    generator = numpy_generator(key)
    confidence = generator.uniform(0.2, 1, n)
    return confidence, generator.uniform(size=n) < confidence


@pytest.mark.parametrize("bins", [1, 10, 15])
def test_ece_is_the_slow_loop(bins: int) -> None:
    confidence, correct = calibrated(500)
    confidence[:2] = 1.0, 0.2
    found = expected_calibration_error(confidence, correct, bins=bins)
    assert found == pytest.approx(slow_error(confidence, correct, bins))
    assert found != pytest.approx(expected_calibration_error(confidence, ~correct, bins=bins))


def test_an_average_over_batches_is_another_number() -> None:
    confidence, correct = calibrated(400)
    batches = [
        expected_calibration_error(confidence[i : i + 50], correct[i : i + 50]) for i in range(0, 400, 50)
    ]
    assert np.mean(batches) > 1.5 * expected_calibration_error(confidence, correct)


def test_the_debiased_error_of_a_calibrated_model_is_nearer_to_0() -> None:
    pairs = [calibrated(500, key) for key in range(40)]
    plain = np.mean([expected_calibration_error(*pair) for pair in pairs])
    debiased = np.mean([debiased_calibration_error(*pair) for pair in pairs])
    assert debiased < 0.7 * plain


def test_the_debiased_error_of_a_large_miscalibrated_set_is_the_plain_one() -> None:
    confidence, correct = calibrated(200_000)
    confidence = np.clip(confidence + 0.1, 0, 1)
    plain = expected_calibration_error(confidence, correct)
    assert plain == pytest.approx(0.1, abs=0.01)
    assert debiased_calibration_error(confidence, correct) == pytest.approx(plain, abs=1e-3)


def test_the_sign_tells_over_from_under_confidence() -> None:
    assert signed_calibration_error([0.9, 0.9], [True, False]) == pytest.approx(0.4)
    assert signed_calibration_error([0.6, 0.6], [True, True]) == pytest.approx(-0.4)


def test_reliability_rows() -> None:
    rows = reliability_rows([0.05, 0.95, 0.97, 1.0], [False, True, False, True], bins=10)
    assert [(row["lower"], row["n"]) for row in rows] == [(0.0, 1), (0.9, 3)]
    assert rows[1]["accuracy"] == pytest.approx(2 / 3)
    assert rows[1]["confidence"] == pytest.approx((0.95 + 0.97 + 1) / 3)
    assert rows[1]["lo"] < 2 / 3 < rows[1]["hi"]


@pytest.mark.parametrize("truth", [0.3, 1.0, 2.5])
def test_temperature_is_the_minimum_of_the_nll(truth: float) -> None:
    generator = torch_generator(1)
    logits = torch.randn(4000, 5, generator=generator) * 2
    labels = torch.multinomial(logits.softmax(1), 1, generator=generator)[:, 0]
    found = fit_temperature(logits * truth, labels)

    def nll(log_t: float) -> float:
        return float(torch.nn.functional.cross_entropy(logits.double() * truth / math.exp(log_t), labels))

    best = optimize.minimize_scalar(nll, bounds=(-5, 5), method="bounded", options={"xatol": 1e-9})
    assert math.log(found) == pytest.approx(best.x, abs=1e-5)
    assert found == pytest.approx(truth, rel=0.1)


def test_outcomes_are_sklearns_scores() -> None:
    logits = torch.randn(300, 2, generator=torch_generator(2)) * 2
    labels = torch.arange(300) % 2
    row = Outcomes.of(logits, labels).summary()
    probabilities = logits.double().softmax(1).numpy()
    assert row["nll"] == pytest.approx(log_loss(labels, probabilities))
    assert row["brier"] == pytest.approx(
        2 * brier_score_loss(labels, probabilities[:, 1])
    )  # both classes count
    assert row["accuracy"] == pytest.approx((probabilities.argmax(1) == labels.numpy()).mean())


def test_scaled_outcomes_are_those_of_scaled_logits() -> None:
    logits, labels = torch.randn(50, 3, generator=torch_generator(3)) * 9, torch.arange(50) % 3
    row, plain = (
        Outcomes.of(logits, labels, temperature=4.0).summary(),
        Outcomes.of(logits / 4, labels).summary(),
    )
    for name in ("ece", "ece_signed", "nll", "brier"):
        assert row[f"{name}_scaled"] == pytest.approx(plain[name])
        assert row[name] != pytest.approx(plain[name])
    assert row["accuracy"] == plain["accuracy"]


def test_what_is_not_finite_becomes_none() -> None:
    row = Outcomes.of(torch.full((3, 2), torch.nan), torch.zeros(3, dtype=torch.int64)).summary()
    assert (row["ece"], row["nll"], row["brier"]) == (None, None, None)
    row = Outcomes.of(torch.tensor([[0.0, -torch.inf]]), torch.tensor([1])).summary()
    assert (row["nll"], row["brier"]) == (None, 2.0)


def test_refusals() -> None:
    with pytest.raises(ShapeError, match="one confidence"):
        expected_calibration_error([0.5], [True, False])
    with pytest.raises(UsageError, match=r"in \[0, 1\]"):
        expected_calibration_error([1.5], [True])
    with pytest.raises(ShapeError, match="logits"):
        fit_temperature(torch.zeros(3), torch.zeros(3, dtype=torch.int64))
