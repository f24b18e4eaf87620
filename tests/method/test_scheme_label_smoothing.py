"""Label smoothing: equal to its formula, with every kind of cross-entropy, once."""

from __future__ import annotations

import functools

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import nfm
from comparing import assert_close, assert_same
from nets import Mlp, batch, build
from nfm.errors import UsageError
from nfm.method.label_smoothing import LabelSmoothing


def by_hand(output: torch.Tensor, y: torch.Tensor, level: float) -> torch.Tensor:
    """Return the mean over examples of -sum_k q_k log p_k with q = (1 - level) * label + level / classes."""
    total = output.new_zeros(())
    for logits, label in zip(output, y.tolist(), strict=True):
        log_p = logits - torch.log(torch.exp(logits).sum())
        q = torch.full_like(logits, level / len(logits))
        q[label] += 1 - level
        total = total - (q * log_p).sum()
    return total / len(y)


@pytest.mark.parametrize("level", [0.0, 0.1, 0.7])
def test_it_equals_its_formula(level: float) -> None:
    net, (x, y) = build(Mlp), batch(6, 4)
    outcome = nfm.scheme("label_smoothing", level=level)(net, x, y)
    assert_close([outcome.loss], [by_hand(net(x), y, level)], relative=1e-6)
    if level:
        assert abs(float((outcome.loss - F.cross_entropy(net(x), y)).detach())) > 1e-4  # the control


@pytest.mark.parametrize("weights", ["batch", "sample"])
def test_with_mixing_both_labels_are_smoothed(weights: str) -> None:
    net, (x, y) = build(Mlp), batch(6, 4)
    method = nfm.scheme("nfm + label_smoothing", sites=Mlp.sites, weights=weights, level=0.3, seed=2)
    outcome = method(net, x, y)
    soft = 0.7 * outcome.draw.soft_targets(y, 3) + 0.3 / 3
    assert_close([outcome.loss], [F.cross_entropy(outcome.output, soft)], relative=1e-5)


def test_every_kind_of_cross_entropy() -> None:
    output, (_, y) = batch(6, 3)[0], batch(6, 3)
    weight = torch.tensor([1.0, 2.0, 3.0])
    expected = F.cross_entropy(output, y, weight=weight, label_smoothing=0.2)
    smooth = LabelSmoothing(0.2).smooth
    assert_same([smooth(functools.partial(F.cross_entropy, weight=weight))(output, y)], [expected])
    module = nn.CrossEntropyLoss(weight)
    assert_same([smooth(module)(output, y)], [expected])
    assert module.label_smoothing == 0  # the caller's own is left as it was


@pytest.mark.parametrize(
    "criterion",
    [functools.partial(F.cross_entropy, label_smoothing=0.1), nn.CrossEntropyLoss(label_smoothing=0.1)],
)
def test_labels_are_smoothed_once(criterion) -> None:
    net, (x, y) = build(Mlp), batch(6, 4)
    with pytest.raises(UsageError, match=r"smooths its labels already, by 0\.1; say it once"):
        nfm.scheme("label_smoothing")(net, x, y, criterion=criterion)


@pytest.mark.parametrize("criterion", [F.mse_loss, nn.BCEWithLogitsLoss(), lambda output, y: output.sum()])
def test_another_loss_is_refused(criterion) -> None:
    net, (x, y) = build(Mlp), batch(6, 4)
    with pytest.raises(UsageError, match="expected a cross-entropy to smooth the labels of"):
        nfm.scheme("label_smoothing")(net, x, y, criterion=criterion)


@pytest.mark.parametrize("level", [-0.1, 1.0, "much", True, float("nan")])
def test_bad_levels_are_refused(level) -> None:
    with pytest.raises(UsageError, match="expected a level from 0 to below 1"):
        LabelSmoothing(level)
