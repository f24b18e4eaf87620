"""Exceptions anywhere: no hook of ours stays, no hook of others goes, the next step is as if nothing happened."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

import nfm
from comparing import assert_same, gradients, hooks_in
from nets import Mlp, batch, build

ERRORS = [ValueError, MemoryError, torch.OutOfMemoryError, KeyboardInterrupt, SystemExit]
POINTS = ["root entry", "before the site", "in the site", "after the site", "root exit"]


def fail(error: type[BaseException]) -> Callable[..., None]:
    def raise_it(*_: object) -> None:
        raise error("on purpose")

    return raise_it


@contextmanager
def failing_at(net: Mlp, point: str, error: type[BaseException]) -> Iterator[None]:
    """Make the network fail at one point; the site is `first`."""
    raise_it = fail(error)
    handle = {
        "root entry": lambda: net.register_forward_pre_hook(raise_it),
        "before the site": lambda: net.stem.register_forward_hook(raise_it),
        "in the site": lambda: net.first[0].register_forward_hook(raise_it),
        "after the site": lambda: net.head.register_forward_pre_hook(raise_it),
        "root exit": lambda: net.register_forward_hook(raise_it),
    }[point]()
    try:
        yield
    finally:
        handle.remove()


def method() -> nfm.NoisyFeatureMixup:
    return nfm.NoisyFeatureMixup(sites="first", seed=2)


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("point", POINTS)
def test_functional_form_in_the_forward_pass(point: str, error: type[BaseException]) -> None:
    net, (x, y) = build(Mlp), batch(6, 4)
    calls = []
    net.second.register_forward_hook(lambda *_: calls.append(1))
    with failing_at(net, point, error), pytest.raises(error, match="on purpose"):
        method()(net, x, y)
    assert hooks_in(net) == 1
    calls.clear()
    assert torch.equal(net(x), build(Mlp)(x))
    assert calls == [1], "a foreign hook was lost"
    assert torch.equal(method()(net, x, y).loss, method()(build(Mlp), x, y).loss)


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("point", POINTS)
def test_attached_form_in_the_forward_pass(point: str, error: type[BaseException]) -> None:
    net, plain, (x, y) = build(Mlp), build(Mlp), batch(6, 4)
    with nfm.attach(net, method()) as mixer:
        installed = hooks_in(net)
        with failing_at(net, point, error), pytest.raises(error, match="on purpose"):
            net(x)
        assert hooks_in(net) == installed
        net.eval()
        assert torch.equal(net.first(x @ torch.ones(4, 8)), plain.first(x @ torch.ones(4, 8)))
        assert torch.equal(net(x), plain(x))
        net.train()
        step = mixer.method.step
        loss = mixer.loss(net(x), y)
        assert torch.equal(loss, method()(plain, x, y, step=step).loss)
    assert hooks_in(net) == 0


@pytest.mark.parametrize("error", ERRORS)
def test_criterion(error: type[BaseException]) -> None:
    net, (x, y) = build(Mlp), batch(6, 4)
    with pytest.raises(error, match="on purpose"):
        method()(net, x, y, criterion=fail(error))
    assert hooks_in(net) == 0
    with nfm.attach(net, method()) as mixer:
        output = net(x)
        with pytest.raises(error, match="on purpose"):
            mixer.loss(output, y, fail(error))
        assert torch.equal(mixer.loss(output, y), method()(build(Mlp), x, y).loss)


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("attached", [False, True])
def test_backward_pass(error: type[BaseException], attached: bool) -> None:
    net, (x, y) = build(Mlp), batch(6, 4)
    mixer = nfm.attach(net, method()) if attached else None
    handle = net.stem.register_forward_hook(lambda m, a, out: out.register_hook(fail(error)) and None)
    loss = mixer.loss(net(x), y) if mixer else method()(net, x, y).loss
    handle.remove()
    with pytest.raises(error, match="on purpose"):
        loss.backward()
    assert_next_step_is_right(net, mixer, x, y)


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("attached", [False, True])
@pytest.mark.parametrize("reentrant", [False, True])
def test_recomputation_in_the_backward_pass(
    error: type[BaseException], attached: bool, reentrant: bool
) -> None:
    """The hooks that are put in again for the recomputation go, too."""
    net = build(lambda: Mlp(call=lambda module, h: checkpoint(module, h, use_reentrant=reentrant)))
    x, y = batch(6, 4)
    mixer = nfm.attach(net, method()) if attached else None
    loss = mixer.loss(net(x), y) if mixer else method()(net, x, y).loss
    handle = net.first[0].register_forward_hook(fail(error))
    with pytest.raises(error, match="on purpose"):
        loss.backward()
    handle.remove()
    assert_next_step_is_right(net, mixer, x, y)


def assert_next_step_is_right(net: Mlp, mixer: nfm.Mixer | None, x, y) -> None:
    """No hook is left in the functional form, evaluation is plain, and the next gradients are right."""
    plain = build(Mlp)
    assert hooks_in(net) == (0 if mixer is None else 3)
    net.eval()
    assert torch.equal(net(x), plain.eval()(x))
    assert torch.equal(net.first(net.stem(x)), plain.first(plain.stem(x)))
    net.train(), plain.train()
    step = 0 if mixer is None else mixer.method.step
    loss = method()(net, x, y, step=step).loss if mixer is None else mixer.loss(net(x), y)
    assert_same(gradients(loss, net), gradients(method()(plain, x, y, step=step).loss, plain))
    if mixer is not None:
        mixer.detach()
    assert hooks_in(net) == 0


def test_a_training_loop_that_is_closed_in_the_middle() -> None:
    net, (x, y) = build(Mlp), batch(6, 4)

    def train() -> Iterator[torch.Tensor]:
        with nfm.attach(net, method()) as mixer:
            while True:
                output = net(x)
                yield mixer.loss(output, y)

    loop = train()
    next(loop)
    assert hooks_in(net) == 3
    loop.close()
    assert hooks_in(net) == 0
    assert torch.equal(net(x), build(Mlp)(x))


def test_an_error_in_a_replay_leaves_nothing() -> None:
    net, (x, y) = build(Mlp), batch(6, 4)
    with nfm.attach(net, method()) as mixer:
        draw = mixer.draw_of(net(x), y)
        for error in (ValueError, KeyboardInterrupt):
            with failing_at(net, "after the site", error), pytest.raises(error), mixer.replay(draw):
                net(x)
            for training in (True, False):
                net.train(training)
                assert torch.equal(net.first(net.stem(x)), build(Mlp).first(net.stem(x)))
            assert torch.equal(net(x), build(Mlp)(x))
            net.train()
            step = mixer.method.step
            assert torch.equal(mixer.loss(net(x), y), method()(build(Mlp), x, y, step=step).loss)


def test_a_naive_hook_would_stay() -> None:
    """The control: what the counters of this file see if a hook is not taken out."""
    net, (x, y) = build(Mlp), batch(6, 4)

    def naive_step() -> None:
        handle = net.first.register_forward_hook(lambda m, a, out: out.flip(0))
        F.cross_entropy(net(x), y)
        handle.remove()

    with failing_at(net, "after the site", ValueError), pytest.raises(ValueError, match="on purpose"):
        naive_step()
    assert hooks_in(net) == 1
    assert not torch.equal(net(x), build(Mlp)(x))
