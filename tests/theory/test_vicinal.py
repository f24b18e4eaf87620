"""Lemma 1: z + eps e_NFM and y + eps e_y are the mixed features and labels of a step."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from comparing import assert_close
from nets import Mlp, batch, build
from nfm.core.noise import Noise, perturb
from nfm.errors import ShapeError, UsageError
from nfm.method.feature_mixup import NoisyFeatureMixup
from nfm.theory.vicinal import label_perturbation, perturbation, vicinal

NOISES = [
    Noise(0.4, 0.2),
    Noise.authors(0.4, 0.2),
    Noise(0.4, 0.2, sparsity=0.5, granularity="sample"),
    Noise(0.4, 0.2, relative=True),
    Noise(0.0, 0.3),
    Noise(0.4, 0.0),
]


@pytest.mark.parametrize("noise", NOISES, ids=str)
@pytest.mark.parametrize("weights", ["batch", "sample"])
def test_it_reproduces_the_features_and_labels_of_a_step(noise: Noise, weights: str) -> None:
    """What the network sees behind the site is z + e_NFM of the draw."""
    net = build(Mlp).double()
    x, y = batch(7, 4, dtype=torch.float64)
    seen: list[torch.Tensor] = []
    method = NoisyFeatureMixup(sites=["stem"], alpha=1.0, noise=noise, weights=weights, seed=5)
    handle = net.first.register_forward_pre_hook(lambda module, args: seen.append(args[0].detach()))
    outcome = method(net, x, y)
    handle.remove()
    z = net.stem(x).detach()
    shift = vicinal(z, outcome.draw)
    rounding = 1e-7 if noise.relative else 1e-12  # a relative level is multiplied into float32 values
    assert_close([z + shift.total()], seen[:1], relative=rounding)
    one_hot = F.one_hot(y, 3).double()
    labels = one_hot + label_perturbation(one_hot, outcome.draw.partner, outcome.draw.weight)
    assert_close([labels], [outcome.draw.soft_targets(y, 3).double()], relative=1e-6)
    with pytest.raises(AssertionError):  # without the mixup part it is another batch
        assert_close([z + shift.noise], seen[:1], relative=1e-3)


@pytest.mark.parametrize("eps", [1.0, 0.5, 2.0**-8])
def test_eps_scales_the_weight_and_both_levels(eps: float) -> None:
    """z + eps e_NFM is the operator with 1 - weight, add and mult all times eps."""
    z, _ = batch(6, 5, dtype=torch.float64)
    add, mult = (0.3 * batch(6, 5, seed=seed, dtype=torch.float64)[0] for seed in (1, 2))
    partner, weight = torch.tensor([1, 2, 3, 4, 5, 0]), torch.linspace(0, 1, 6, dtype=torch.float64)
    rest = eps * (1 - weight)[:, None]
    expected = perturb((1 - rest) * z + rest * z[partner], add=eps * add, mult=eps * mult)
    shift = perturbation(z, partner, weight, add=add, mult=mult)
    assert_close([z + eps * shift.total(eps)], [expected], relative=1e-13)
    if eps != 1.0:
        with pytest.raises(AssertionError):  # the product of noise and mixing has one more eps
            assert_close([z + eps * shift.total(1.0)], [expected], relative=1e-6)


def test_the_parts_add_up() -> None:
    z, _ = batch(4, 3, dtype=torch.float64)
    mult = torch.full_like(z, 0.5)
    shift = perturbation(z, torch.tensor([1, 0, 3, 2]), torch.tensor(0.25), mult=mult)
    assert_close([shift.mixup], [0.75 * (z[[1, 0, 3, 2]] - z)], relative=1e-15)
    assert_close([shift.noise, shift.cross], [0.5 * z, 0.5 * shift.mixup], relative=1e-15)


def test_refusals() -> None:
    z, _ = batch(4, 3)
    with pytest.raises(ShapeError, match="expected 4 partners"):
        perturbation(z, torch.tensor([1, 0]), torch.tensor(0.5))
    with pytest.raises(ShapeError, match="floating-point targets"):
        label_perturbation(torch.tensor([0, 1]), torch.tensor([1, 0]), torch.tensor(0.5))
    from nfm.core.draw import Draw

    with pytest.raises(UsageError, match="draw of a mixed step"):
        vicinal(z, Draw.plain(4))
