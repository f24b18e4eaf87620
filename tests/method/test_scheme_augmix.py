"""AugMix: the laws of its choices, what it refuses, and how it meets batch norm."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import nfm
from comparing import assert_close
from nets import ConvNet, Mlp, batch, build
from nfm.errors import ShapeError, UsageError
from nfm.method.chains import OPERATIONS, Chains

N = 4000


def test_the_laws_of_the_choices() -> None:
    """Depth 1 to 3, operations and levels uniform, Dirichlet(1) and Beta(1, 1), each within five standard errors."""
    plan = Chains().plan(N, 2, key=1)
    depth = (plan.operation >= 0).sum(-1)
    for value in (1, 2, 3):
        assert abs((depth == value).mean() - 1 / 3) < 5 * np.sqrt(2 / 9 / depth.size)
    chosen = plan.operation[plan.operation >= 0]
    for index in range(len(OPERATIONS)):
        assert abs((chosen == index).mean() - 1 / 9) < 5 * np.sqrt(8 / 81 / chosen.size)
    assert plan.level.min() >= 0.01
    assert plan.level.max() <= 0.3
    assert abs(plan.level.mean() - 0.155) < 5 * 0.29 / np.sqrt(12 * plan.level.size)
    assert np.allclose(plan.chains.sum(-1), 1)
    assert abs(plan.chains[..., 0].var() - 1 / 18) < 0.004  # of Dirichlet(1, 1, 1)
    assert abs(plan.image.mean() - 0.5) < 5 / np.sqrt(12 * plan.image.size)
    assert abs(plan.image.var() - 1 / 12) < 0.004


def test_a_fixed_depth_and_width() -> None:
    plan = Chains(width=2, depth=4).plan(5, 2, key=1)
    assert plan.operation.shape == (5, 2, 2, 4)
    assert (plan.operation >= 0).all()


def test_operations_that_overlap_the_corruption_test_set_are_left_out() -> None:
    names = {operation.apply.__name__ for operation in OPERATIONS}
    assert names == {
        "autocontrast", "equalize", "posterize", "rotate", "solarize", "shear_x", "shear_y", "translate_x",
        "translate_y",
    }  # fmt: skip


def test_severity_is_strength() -> None:
    x = torch.rand(64, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    changes = [
        float((Chains(severity=severity).views(x, 1, key=2)[0] - x).abs().mean())
        for severity in (0.1, 3.0, 10.0)
    ]
    assert changes == sorted(changes)


def test_batch_norm_sees_the_three_views_together() -> None:
    net = build(ConvNet)
    x, y = torch.rand(4, 3, 8, 8), torch.arange(4) % 3
    seen = []
    net.first[1].register_forward_hook(lambda module, args, output: seen.append(len(args[0])))
    nfm.scheme("augmix")(net, x, y)
    assert seen == [12]


def test_the_clean_view_comes_back() -> None:
    """Without batch norm the output is the plain one."""

    class Linear(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = torch.nn.Linear(12, 3)

        def forward(self, x):
            return self.head(x.flatten(1))

    net, x, y = build(Linear), torch.rand(4, 3, 2, 2), torch.arange(4) % 3
    assert_close([nfm.scheme("augmix")(net, x, y).output], [net(x)], relative=1e-6)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (
            torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(0)),
            r"pixels in \[0, 1\], got values from -",
        ),
        (torch.full((4, 3, 8, 8), float("nan")), r"pixels in \[0, 1\], got values from nan"),
        (torch.zeros(4, 3, 8, 8, dtype=torch.uint8), r"batch of images .*got torch.uint8"),
        (torch.zeros(4, 12), r"batch of images .*got torch.float32 \(4, 12\)"),
        ((torch.zeros(4, 3, 8, 8), torch.zeros(4)), "batch of images .*got tuple"),
    ],
)
def test_what_are_no_pixels_is_refused(x, message: str) -> None:
    net, y = build(ConvNet), torch.arange(4) % 3
    with pytest.raises(ShapeError, match=message):
        nfm.scheme("augmix")(net, x, y)
    with pytest.raises(ShapeError, match=message):
        nfm.scheme("augmix").check(net, x)


def test_an_output_that_is_no_logits_is_refused() -> None:
    class Dense(torch.nn.Module):
        def forward(self, x):
            return torch.nn.functional.conv2d(x, torch.ones(2, 3, 1, 1).requires_grad_())

    with pytest.raises(
        ShapeError, match=r"expected logits \[12, classes\] to compare the views by, got \(12, 2, 4, 4\)"
    ):
        nfm.scheme("augmix")(Dense(), torch.rand(4, 3, 4, 4), torch.arange(4) % 2)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"jsd": -1}, "jsd: expected a finite factor"), ({"jsd": True}, "jsd: expected"),
        ({"severity": 11}, "severity: expected a number from 0.1 to 10, got 11"), ({"width": 0}, "width: expected"),
        ({"depth": 0}, "depth: expected"), ({"depth": 1.5}, "depth: expected"), ({"alpha": 0}, "alpha: expected"),
        ({"severity": "3"}, "severity: expected a number from 0.1 to 10, got '3'"),
        ({"severity": True}, "severity: expected"), ({"alpha": "x"}, "alpha: expected a finite number.*got 'x'"),
    ],
)  # fmt: skip
def test_bad_settings_are_refused(settings: dict, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        nfm.scheme("augmix", **settings)


def test_vectors_are_no_images() -> None:
    with pytest.raises(ShapeError, match="augmix: expected one batch of images"):
        nfm.scheme("augmix").check(build(Mlp), batch(4, 4)[0])
