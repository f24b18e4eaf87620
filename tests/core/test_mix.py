"""Mixing and its transpose."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nfm.core.mixing import Pairing, mix, mix_transposed, partners_of
from nfm.core.operator import drawn_pairing
from nfm.errors import ShapeError


def pairing(size: int, weight: float | list[float], key: int = 1) -> Pairing:
    partner = drawn_pairing(key, size, 0.5, 1.0, 1.0, per_sample=False, dominant=False).partner
    return Pairing(partner, torch.tensor(weight, dtype=torch.float64))


def values(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_weights_0_and_1_are_exact(dtype: torch.dtype) -> None:
    h = values(5, 3, dtype=dtype)
    zero, one = pairing(5, 0.0), pairing(5, 1.0)
    assert torch.equal(mix(h, one), h)
    assert torch.equal(mix(h, zero), h[zero.partner])
    each = pairing(5, [0.0, 1.0, 0.0, 1.0, 1.0])
    expected = torch.where(each.weight.bool()[:, None], h, h[each.partner])
    assert torch.equal(mix(h, each), expected)
    assert not torch.equal(mix(h, pairing(5, 0.5)), h)


@given(
    shape=st.lists(st.integers(1, 5), min_size=1, max_size=4),
    per_sample=st.booleans(),
    weight=st.floats(0, 1),
    key=st.integers(0, 1000),
)
def test_any_shape_equals_the_loop_and_its_transpose(
    shape, per_sample: bool, weight: float, key: int
) -> None:
    size = shape[0]
    pair = pairing(size, [weight * i / size for i in range(size)] if per_sample else weight, key)
    h, g = values(*shape, seed=1), values(*shape, seed=2)
    rows = [
        own * h[i] + (1 - own) * h[j]
        for i, (own, j) in enumerate(
            zip(pair.weight.expand(size).tolist(), pair.partner.tolist(), strict=True)
        )
    ]
    assert torch.allclose(mix(h, pair), torch.stack(rows), atol=1e-12)
    # <g, A h> = <A' g, h>: the transposed map is the gradient
    assert torch.allclose((g * mix(h, pair)).sum(), (mix_transposed(g, pair) * h).sum(), atol=1e-9)


def test_the_transpose_undoes_the_permutation_and_does_not_repeat_it() -> None:
    pair, h, g = pairing(5, 0.3), values(5, 2).requires_grad_(), values(5, 2, seed=1)
    (expected,) = torch.autograd.grad((mix(h, pair) * g).sum(), h)
    assert torch.allclose(mix_transposed(g, pair), expected, atol=1e-12)
    assert not torch.equal(pair.partner, torch.argsort(pair.partner))
    assert not torch.allclose(mix(g, pair), expected, atol=1e-3)


@pytest.mark.parametrize("h", [torch.zeros(4, 2), torch.zeros(())])
def test_another_batch_is_refused(h: torch.Tensor) -> None:
    for function in (mix, mix_transposed, partners_of):
        with pytest.raises(ShapeError, match="expected a batch of 5 in dim 0"):
            function(h, pairing(5, 0.5))


def test_the_input_is_left_as_it_was() -> None:
    h = values(5, 3)
    before = h.clone()
    mix(h, pairing(5, 0.5))
    mix_transposed(h, pairing(5, 0.5))
    assert torch.equal(h, before)
