"""Puzzle Mix: its one extra pass, the grids that fit, what is refused."""

from __future__ import annotations

import sys

import pytest
import torch
import torch.nn.functional as F

import nfm
from comparing import assert_different, assert_same
from nets import ConvNet, build
from nfm.errors import EnvironmentProblem, ShapeError, UsageError
from nfm.method.puzzlemix import PuzzleDraw


def pixels(size: int = 5, height: int = 8, width: int = 8):
    generator = torch.Generator().manual_seed(0)
    return torch.rand(size, 3, height, width, generator=generator), torch.arange(size) % 3


def test_one_extra_pass_in_the_mode_asked_for() -> None:
    for mode, expected in (("eval", [False, True]), ("train", [True, True])):
        net, seen = build(ConvNet), []
        net.first[1].register_forward_hook(
            lambda module, args, output, seen=seen: seen.append(module.training)
        )
        nfm.scheme("puzzlemix", mode=mode)(net, *pixels())
        assert seen == expected
        assert int(net.first[1].num_batches_tracked) == 1


def test_the_extra_pass_leaves_no_gradient() -> None:
    net = build(ConvNet)
    nfm.scheme("puzzlemix")(net, *pixels())
    assert all(parameter.grad is None for parameter in net.parameters())


def test_the_grids_are_those_that_divide_the_sides() -> None:
    scheme = nfm.scheme("puzzlemix")
    assert {scheme.grid_of(step, (1, 3, 32, 32)) for step in range(60)} == {2, 4, 8, 16}
    assert {scheme.grid_of(step, (1, 3, 8, 8)) for step in range(60)} == {2, 4, 8}
    assert {scheme.grid_of(step, (1, 3, 28, 12)) for step in range(60)} == {2, 4}


@pytest.mark.parametrize(("height", "width"), [(8, 12), (6, 16), (2, 2), (10, 14)])
def test_sides_may_differ(height: int, width: int) -> None:
    for step in range(4):
        outcome = nfm.scheme("puzzlemix", t_eps=0.01)(build(ConvNet), *pixels(3, height, width), step=step)
        assert torch.isfinite(outcome.loss)


def test_the_weight_is_the_share_of_the_mask() -> None:
    draw = nfm.scheme("puzzlemix")(build(ConvNet), *pixels()).draw
    assert isinstance(draw, PuzzleDraw)
    assert_same([draw.weight], [draw.mask.mean((1, 2))])
    assert set((draw.mask * 2).flatten().tolist()) <= {0.0, 1.0, 2.0}


def test_the_prior_draws_the_mask_to_its_weight() -> None:
    x, y = pixels(16)
    shares = []
    for step in range(12):
        scheme = nfm.scheme("puzzlemix", eta=50.0, transport=False)
        draw = scheme(build(ConvNet), x, y, step=step).draw
        shares.append(float(draw.weight.mean()))
    assert min(shares) < 0.2
    assert max(shares) > 0.8


def test_a_replay_shows_a_teacher_the_same_puzzles() -> None:
    (x, y), teacher = pixels(), build(ConvNet, seed=1).eval()
    scheme = nfm.scheme("puzzlemix")
    made = scheme(build(ConvNet), x, y, step=1)
    assert float(made.draw.weight.min()) < 1
    with torch.no_grad():
        again = scheme.replay(made.draw)(teacher, x, y)
    assert_same([again.output], [teacher(made.draw.mix(x)).detach()])
    assert_different([again.output], [teacher(x).detach()])


def test_alpha_0_mixes_nothing() -> None:
    x, y = pixels()
    outcome = nfm.scheme("puzzlemix", alpha=0.0)(build(ConvNet), x, y)
    assert_same([outcome.loss], [F.cross_entropy(build(ConvNet)(x), y)])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"gamma": 1.1}, r"gamma: expected a number from 0 to 1 \(else neighbours may repel\), got 1\.1"),
        ({"beta": -1}, "beta: expected a number 0 or greater"),
        ({"eta": "much"}, "eta: expected a number"),
        ({"n_labels": 1}, "n_labels: expected a whole number of at least 2"),
        ({"neigh_size": 0}, "neigh_size: expected"),
        ({"t_size": 2.5}, "t_size: expected"),
        ({"grids": ()}, "grids: expected one or more"),
        ({"grids": 4}, "grids: expected one or more numbers.*got 4"),
        ({"grids": "48"}, "grids: expected one or more numbers.*got '48'"),
        ({"transport": "no"}, "transport: expected True or False, got 'no'"),
        ({"grids": (1,)}, r"grids\[0\]: expected a whole number of at least 2"),
        ({"mode": "both"}, "mode: expected 'eval' or 'train'"),
    ],
)
def test_bad_settings_are_refused(settings: dict, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        nfm.scheme("puzzlemix", **settings)


def test_images_that_no_grid_divides_are_refused() -> None:
    x, y = pixels(3, 7, 8)
    with pytest.raises(ShapeError, match="whose sides one of 2, 4, 8, 16 divides, got 7x8"):
        nfm.scheme("puzzlemix")(build(ConvNet), x, y)
    with pytest.raises(ShapeError, match=r"expected pixels in \[0, 1\]"):
        nfm.scheme("puzzlemix").check(build(ConvNet), 2 * pixels()[0])


def test_without_scipy_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.sparse", None)
    with pytest.raises(EnvironmentProblem, match=r"puzzlemix needs scipy.*noisy-feature-mixup\[data\]"):
        nfm.scheme("puzzlemix")(build(ConvNet), *pixels())
