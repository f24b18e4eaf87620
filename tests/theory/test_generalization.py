"""Generalisation: each term against its definition; what is vacuous is called so; Q cancels."""

from __future__ import annotations

import math
from itertools import product

import pytest
import torch
from torch import nn

from nets import batch, build
from nfm.errors import ShapeError, UsageError
from nfm.theory.generalization import (
    finite_class_complexity,
    generalization_bounds,
    linear_class_complexity,
    massart_bound,
    mcdiarmid,
    norm_class_complexity,
)


def test_the_confidence_term_of_each_loss() -> None:
    printed = 2 * math.sqrt(math.log(20) / (2 * 50))
    assert mcdiarmid(1.0, n=50, delta=0.05) == pytest.approx(printed)
    assert mcdiarmid(1.0, n=50, delta=0.05, form="standard") == pytest.approx(printed / 2)
    assert mcdiarmid(1.0, n=50, delta=0.05, form="nfm") == pytest.approx(printed * 99 / 100)


def test_one_example_changes_the_pair_loss_by_no_more_than_2n_minus_1_terms() -> None:
    """A mean over all pairs of values in [0, 1] moves by at most (2n - 1)/n^2 when one example is exchanged."""
    n = 6
    values = torch.zeros(n, n)
    changed = values.clone()
    changed[2], changed[:, 2] = 1, 1
    moved = float(changed.mean() - values.mean())
    assert moved == pytest.approx((2 * n - 1) / n**2)
    assert moved > 1 / n  # more than one term of a plain mean


def test_both_bounds_are_one_number() -> None:
    """Whatever Q is, it cancels: the bound "with NFM" is no better by itself."""
    for nfm_loss in (0.3, 0.9):
        found = generalization_bounds(standard_loss=0.2, nfm_loss=nfm_loss, complexity=0.05, span=1.0, n=400)
        assert found.with_nfm == pytest.approx(found.standard)
        assert found.q == pytest.approx(nfm_loss - 0.2)
        assert found.nfm_loss + 2 * found.complexity + found.confidence != pytest.approx(found.standard)


def test_vacuous_is_called_vacuous() -> None:
    small = generalization_bounds(standard_loss=0.1, nfm_loss=0.2, complexity=0.02, span=1.0, n=1000)
    large = generalization_bounds(standard_loss=0.1, nfm_loss=0.2, complexity=0.6, span=1.0, n=1000)
    assert (small.vacuous, large.vacuous) == (False, True)
    assert "not vacuous" in str(small)
    assert "vacuous: it says nothing" in str(large)


def all_signs(count: int) -> torch.Tensor:
    return torch.tensor(list(product((-1.0, 1.0), repeat=count)), dtype=torch.float64)


def test_the_complexity_of_a_finite_class_by_enumeration() -> None:
    losses = batch(3, 8, dtype=torch.float64)[0].abs()
    exact = float((all_signs(8) @ losses.T / 8).amax(1).mean())
    found = finite_class_complexity(losses, draws=4000)
    assert abs(found.value - exact) < 4 * found.error
    assert found.value <= massart_bound(losses)
    assert abs(finite_class_complexity(losses[:1], draws=4000).value) < 0.2 * exact  # one member has none


def test_the_complexity_of_the_linear_class_by_enumeration() -> None:
    x = batch(8, 3, dtype=torch.float64)[0]
    exact = 2 * float((all_signs(8) @ x).norm(dim=1).mean()) / 8
    found = linear_class_complexity(x, 2.0, draws=4000)
    assert abs(found.value - exact) < 4 * found.error
    assert exact <= 2 * float(x.norm()) / 8  # Jensen's closed form
    assert abs(linear_class_complexity(x, 1.0, draws=4000).value - exact) > 4 * found.error


def test_the_norm_bound_is_above_every_member_and_vacuous_in_practice() -> None:
    net = build(
        lambda: nn.Sequential(nn.Linear(4, 6, bias=False), nn.ReLU(), nn.Linear(6, 1, bias=False))
    ).double()
    x = batch(32, 4, dtype=torch.float64)[0]
    found = norm_class_complexity(net, x)
    members = torch.cat([sign * net(x).detach().T for sign in (1, -1)])
    assert finite_class_complexity(members).value < found
    wide = build(
        lambda: nn.Sequential(nn.Linear(4, 256, bias=False), nn.ReLU(), nn.Linear(256, 1, bias=False))
    )
    assert generalization_bounds(
        standard_loss=0.1, nfm_loss=0.2, complexity=norm_class_complexity(wide, x), span=1.0, n=32
    ).vacuous


def test_refusals() -> None:
    with pytest.raises(UsageError, match="form: expected printed, nfm, standard"):
        mcdiarmid(1.0, n=10, delta=0.1, form="rigth")
    with pytest.raises(UsageError, match="0 < delta < 1"):
        mcdiarmid(1.0, n=10, delta=0.0)
    with pytest.raises(ShapeError, match=r"expected losses \[members, n\]"):
        finite_class_complexity(torch.zeros(3))
    with pytest.raises(UsageError, match="bias-free ReLU network"):
        norm_class_complexity(nn.Sequential(nn.Linear(4, 1)), torch.zeros(2, 4))
    with pytest.raises(UsageError, match="draws: expected 2 or more"):
        linear_class_complexity(torch.zeros(2, 4), 1.0, draws=1)
