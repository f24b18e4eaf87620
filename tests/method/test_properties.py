"""Properties over batch sizes, widths, dtypes, sites and settings; and derivatives of derivatives."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import nfm
from comparing import assert_close, assert_same, gradients, hooks_in
from nets import Mlp, batch, build, run_by_hand
from nfm.core.mixing import mix
from nfm.core.noise import perturb
from nfm.core.operator import noise_of
from nfm.randomness import fold


@given(
    size=st.integers(1, 9),
    width=st.integers(1, 6),
    dtype=st.sampled_from([torch.float32, torch.float64, torch.bfloat16]),
    site=st.sampled_from(Mlp.sites),
    alpha=st.sampled_from([0.0, 1e-8, 0.3, 1.0]),
    weights=st.sampled_from(["batch", "sample"]),
    add=st.sampled_from([0.0, 0.4]),
    mult=st.sampled_from([0.0, 0.2]),
    attached=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_step_equals_the_one_by_hand(
    size, width, dtype, site, alpha, weights, add, mult, attached, seed
) -> None:
    net, (x, y) = build(lambda: Mlp(width=width)).to(dtype), batch(size, 4, dtype=dtype)
    method = nfm.NoisyFeatureMixup(
        sites=site, alpha=alpha, noise=nfm.Noise(add, mult), weights=weights, seed=seed
    )
    if attached:
        with nfm.attach(net, method) as mixer:
            outcome = mixer.outcome(net(x), y)
    else:
        outcome = method(net, x, y)
    output = run_by_hand(net, x, outcome.draw) if alpha or add or mult else net(x)
    assert_same([outcome.output], [output])
    each = F.cross_entropy(output, y, reduction="none")
    other = F.cross_entropy(output, y[outcome.draw.partner], reduction="none")
    weight = outcome.draw.weight.to(dtype)
    expected = (weight * each + (1 - weight) * other).mean()
    assert torch.allclose(outcome.loss, expected, rtol=8 * torch.finfo(dtype).eps)
    found = gradients(outcome.loss, net)
    assert all(gradient.dtype == dtype and torch.isfinite(gradient).all() for gradient in found)
    assert hooks_in(net) == 0


def plain_operations(draw: nfm.Draw, h: Tensor) -> Tensor:
    """Apply `draw` to `h` by plain tensor operations."""
    noise, drawn = draw.choice.noise, draw.choice.arguments
    numbers, keys = drawn.numbers, drawn.keys
    add, mult = noise_of(
        h, numbers, fold(keys.noise, 0), add_law=noise.add_law, mult_law=noise.mult_law,
        granularity=noise.granularity, sparsity=noise.sparsity,
    )  # fmt: skip
    return perturb(mix(h, draw.pairing), add=add, mult=mult)


def penalty(loss: Tensor, x: Tensor) -> Tensor:
    """Return the squared norm of the loss's gradient in the input: what double backward is for."""
    return torch.autograd.grad(loss, x, create_graph=True)[0].square().sum()


@pytest.mark.parametrize("attached", [False, True])
@pytest.mark.parametrize("weights", ["batch", "sample"])
def test_a_gradient_penalty_through_the_network(weights: str, attached: bool) -> None:
    net, (x, y) = build(Mlp).double(), batch(6, 4, dtype=torch.float64)
    x.requires_grad_()
    settings = {"sites": "first", "weights": weights, "seed": 3}
    if attached:
        with nfm.attach(net, nfm.NoisyFeatureMixup(**settings)) as mixer:
            outcome = mixer.outcome(net(x), y)
    else:
        outcome = nfm.NoisyFeatureMixup(**settings)(net, x, y)
    found = gradients(penalty(outcome.loss, x), net)
    h = plain_operations(outcome.draw, net.first(net.stem(x)))
    output = net.head(net.second(h))
    each, other = (F.cross_entropy(output, label, reduction="none") for label in (y, y[outcome.draw.partner]))
    weight = outcome.draw.weight
    loss = (weight * each + (1 - weight) * other).mean()
    assert_close(found, gradients(penalty(loss, x), net), relative=1e-10)
    plain = gradients(penalty(F.cross_entropy(net(x), y), x), net)
    with pytest.raises(AssertionError):
        assert_close(found, plain, relative=1e-2)
