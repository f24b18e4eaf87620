"""The paper's own statements about the operator."""

from __future__ import annotations

import math

import pytest
import torch

from comparing import assert_close
from nfm.core.mixing import Pairing, mix
from nfm.core.noise import perturb
from nfm.core.operator import drawn_pairing
from nfm.core.streams import draw_values
from nfm.core.weights import sample_beta

CPU = torch.device("cpu")


def gaussian(*shape: int, key: int) -> torch.Tensor:
    return draw_values("gaussian", shape, key, CPU).double()


def pairing(size: int, *, per_sample: bool, key: int = 4) -> Pairing:
    return drawn_pairing(key, size, 0.3, 1.0, 1.0, per_sample=per_sample, dominant=False)


@pytest.mark.parametrize("per_sample", [False, True])
def test_mixing_then_noise_equals_noise_then_mixing_if_both_points_share_the_noise(per_sample: bool) -> None:
    h, pair = gaussian(6, 5, key=1), pairing(6, per_sample=per_sample)
    add, mult = 0.4 * gaussian(6, 5, key=2), 0.2 * gaussian(6, 5, key=3)
    after = perturb(mix(h, pair), add=add, mult=mult)
    weight = pair.weight.reshape(-1, 1)
    own = perturb(h, add=add, mult=mult)
    partner = perturb(h[pair.partner], add=add, mult=mult)  # the partner gets the example's own noise
    assert_close([weight * own + (1 - weight) * partner], [after], relative=1e-12)
    with pytest.raises(AssertionError):  # each point with noise of its own: another law
        assert_close([mix(own, pair)], [after], relative=1e-2)


def test_independent_noise_before_mixing_has_two_thirds_of_the_variance() -> None:
    """E[w^2 + (1 - w)^2] = 2/3 at alpha 1 (docs/differences.md, row 7)."""
    count = 200_000
    weights = torch.from_numpy(sample_beta(1.0, 1.0, count, key=5))
    first, second = gaussian(count, key=6), gaussian(count, key=7)
    squares = (weights * first + (1 - weights) * second).square()
    standard_error = float(squares.std()) / math.sqrt(count)
    assert abs(float(squares.mean()) - 2 / 3) < 4 * standard_error
    assert abs(float(first.square().mean()) - 2 / 3) > 20 * standard_error


@pytest.mark.parametrize("per_sample", [False, True])
def test_vicinal_form_of_lemma_1(per_sample: bool) -> None:
    """The noisy mixture is z + e_NFM, e_NFM = (1 - w)(z~ - z) + mult * (w z + (1 - w) z~) + add."""
    z, pair = gaussian(6, 5, key=11), pairing(6, per_sample=per_sample)
    add, mult = 0.4 * gaussian(6, 5, key=12), 0.2 * gaussian(6, 5, key=13)
    other, weight = z[pair.partner], pair.weight.reshape(-1, 1)
    e_mixup = (1 - weight) * (other - z)
    e_nfm = e_mixup + mult * (z + e_mixup) + add
    assert_close([z + e_nfm], [perturb(mix(z, pair), add=add, mult=mult)], relative=1e-12)
    with pytest.raises(AssertionError):  # the printed special case without multiplicative noise
        assert_close([z + e_mixup + add], [perturb(mix(z, pair), add=add, mult=mult)], relative=1e-2)
