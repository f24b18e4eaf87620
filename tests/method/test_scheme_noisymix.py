"""NoisyMix inside a network: batch norm, the compiler, checkpointing, schedules, refusals."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend

import nfm
from comparing import assert_close, assert_same, flat, gradients, hooks_in
from nets import ConvNet, batch, build
from nfm.errors import ShapeError, SiteError, UsageError
from nfm.method.attach import ready_to_compile


def method(**settings):
    return nfm.scheme("noisymix", **({"sites": ConvNet.sites, "seed": 3} | settings))


def pixels(size: int = 5):
    x, y = batch(size, 3, 6, 6)
    return x.sigmoid(), y


def test_batch_norm_sees_the_three_views_together() -> None:
    net, seen = build(ConvNet), []
    net.first[1].register_forward_hook(lambda module, args, output: seen.append(len(args[0])))
    method()(net, *pixels())
    assert seen == [15]


@pytest.mark.usefixtures("fresh_compiler")
def test_compiled_equals_eager() -> None:
    eager, net, (x, y) = build(ConvNet), build(ConvNet), pixels()
    counter = CompileCounterWithBackend("aot_eager")
    scheme = method()
    with ready_to_compile(net, scheme):
        forward = torch.compile(net, backend=counter, fullgraph=True)
        for step in range(8):
            expected, found = method()(eager, x, y, step=step), scheme(forward, x, y, step=step)
            assert_same(
                [found.draw.weight, found.draw.partner], [expected.draw.weight, expected.draw.partner]
            )
            ours, theirs = flat(gradients(found.loss, net)), flat(gradients(expected.loss, eager))
            assert_close([ours], [theirs], relative=1e-5)
    assert counter.frame_count <= len(ConvNet.sites) + 1
    assert hooks_in(net) == 0


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda draw: pickle.loads(pickle.dumps(draw))])
def test_a_copied_draw_repeats_the_step(copied) -> None:
    x, y = pixels()
    first = method()(build(ConvNet), x, y)
    again, other = (
        method()(build(ConvNet), x, y, **how) for how in ({"draw": copied(first.draw)}, {"step": 1})
    )
    assert_same([again.loss], [first.loss])
    assert not torch.equal(other.loss, first.loss)


def test_levels_rise() -> None:
    rising = method(noise=nfm.Noise(0.4, 0.2), ramp=4)
    assert rising.at(2).noise == nfm.Noise(0.2, 0.1)
    assert rising.at(9).noise == nfm.Noise(0.4, 0.2)


def test_it_composes_with_label_smoothing() -> None:
    x, y = pixels()
    plain, smooth = (
        nfm.scheme(text, sites=ConvNet.sites, seed=3) for text in ("noisymix", "noisymix + label_smoothing")
    )
    one, other = (scheme(build(ConvNet), x, y, step=1) for scheme in (plain, smooth))
    assert_same([one.output], [other.output])
    assert float(one.loss.detach()) != float(other.loss.detach())


def test_it_does_not_attach_and_takes_images_in_range_only() -> None:
    with pytest.raises(UsageError, match="acts inside one forward pass to attach"):
        nfm.attach(build(ConvNet), "noisymix")
    x, y = batch(5, 3, 6, 6)
    with pytest.raises(ShapeError, match=r"noisymix: expected pixels in \[0, 1\]"):
        method()(build(ConvNet), x, y)
    with pytest.raises(SiteError, match="no site 'frist'"):
        method(sites=["frist"]).check(build(ConvNet), pixels()[0])
