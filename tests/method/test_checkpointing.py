"""Activation checkpointing: gradients equal to the bit, whatever the mode, in both forms.

Losses cannot show it: they come from the first forward pass. Only gradients see the recomputed one.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
    set_checkpoint_early_stop,
)

import nfm
from comparing import assert_different, assert_same, gradients, hooks_in
from nets import Mlp, batch, build
from nfm.errors import AttachError
from nfm.method.presets import PRESETS

# Reentrant checkpoints say this of every evaluation without gradients.
pytestmark = pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad=True")
SCHEMES = ["erm", "mixup", "manifold_mixup", "noise_injection", "nfm"]
STEPS = 4


def keep_matrix_products(ctx, operator, *args, **kwargs) -> CheckpointPolicy:
    product = operator in (torch.ops.aten.addmm.default, torch.ops.aten.mm.default)
    return CheckpointPolicy.MUST_SAVE if product else CheckpointPolicy.PREFER_RECOMPUTE


def without_early_stop(module: nn.Module, h: Tensor) -> Tensor:
    with set_checkpoint_early_stop(False):
        return checkpoint(module, h, use_reentrant=False)


def nested(module: nn.Module, h: Tensor, *, reentrant: bool) -> Tensor:
    def inner(h: Tensor) -> Tensor:
        return checkpoint(module, h, use_reentrant=reentrant)

    return checkpoint(inner, h, use_reentrant=reentrant)


MODES: dict[str, Callable[[nn.Module, Tensor], Tensor]] = {
    "reentrant": functools.partial(checkpoint, use_reentrant=True),
    "reentrant, no rng": functools.partial(checkpoint, use_reentrant=True, preserve_rng_state=False),
    "non-reentrant": functools.partial(checkpoint, use_reentrant=False),
    "non-reentrant, no rng": functools.partial(checkpoint, use_reentrant=False, preserve_rng_state=False),
    "no early stop": without_early_stop,
    "nested reentrant": functools.partial(nested, reentrant=True),
    "nested non-reentrant": functools.partial(nested, reentrant=False),
    "selective": functools.partial(
        checkpoint, use_reentrant=False,
        context_fn=functools.partial(create_selective_checkpoint_contexts, keep_matrix_products),
    ),
}  # fmt: skip


def method(name: str) -> nfm.NoisyFeatureMixup:
    return nfm.preset(name, sites=PRESETS[name].sites or Mlp.sites, seed=7)


def network(mode: str | None) -> Mlp:
    return build(lambda: Mlp(call=MODES[mode] if mode else None))


def steps(net: Mlp, name: str, *, attached: bool) -> list[list[Tensor]]:
    """Return the gradients of some steps, each over two forward passes with an evaluation between them."""
    scheme, found = method(name), []
    mixer = nfm.attach(net, scheme) if attached else None
    for step in range(STEPS):
        losses = []
        for part in range(2):
            x, y = batch(6, 4, seed=2 * step + part)
            losses.append(mixer.loss(net(x), y) if mixer else scheme(net, x, y).loss)
            evaluate(net, x)
        found.append(gradients(losses[0] + losses[1], net))
    if mixer:
        mixer.detach()
    assert hooks_in(net) == 0
    return found


@functools.cache
def plain_steps(name: str, *, attached: bool) -> list[list[Tensor]]:
    return steps(network(None), name, attached=attached)


def evaluate(net: Mlp, x: Tensor) -> None:
    net.eval()
    net(x.requires_grad_())
    with torch.no_grad():
        net(x.detach())
    net.train()


@pytest.mark.parametrize("attached", [False, True], ids=["functional", "attached"])
@pytest.mark.parametrize("name", SCHEMES)
@pytest.mark.parametrize("mode", list(MODES))
def test_blocks_in_checkpoints(mode: str, name: str, attached: bool) -> None:
    expected = plain_steps(name, attached=attached)
    for found, plain in zip(steps(network(mode), name, attached=attached), expected, strict=True):
        assert_same(found, plain)


@pytest.mark.parametrize("first", ["plain", "input", "mixed"])
@pytest.mark.parametrize("mode", list(MODES))
def test_one_backward_pass_over_a_mixed_and_another_forward_pass(mode: str, first: str) -> None:
    """Each is recomputed as it was, whichever ran first: a plain pass stays plain beside a mixed one."""
    x, y = batch(6, 4, seed=3)
    x.requires_grad_()
    site = Mlp.sites[-1]
    inside = nfm.preset("nfm", sites=site, seed=7)
    others: dict[str, Callable[[Mlp], Tensor]] = {
        "plain": lambda net: F.cross_entropy(net(x), y),
        "input": lambda net: nfm.preset("nfm", sites="input", seed=8)(net, x, y, step=0).loss,
        "mixed": lambda net: nfm.preset("nfm", sites=site, seed=8)(net, x, y, step=0).loss,
    }

    def both(mode: str | None, *, other_first: bool) -> list[Tensor]:
        net = network(mode)
        passes = [others[first], lambda net: inside(net, x, y, step=0).loss]
        one, two = (run(net) for run in (passes if other_first else reversed(passes)))
        return gradients(one + two, net)

    for other_first in (True, False):
        assert_same(both(mode, other_first=other_first), both(None, other_first=other_first))
    net = network(None)
    assert_different(both(mode, other_first=True), gradients(2 * inside(net, x, y, step=0).loss, net))


@pytest.mark.parametrize("mode", ["reentrant", "non-reentrant", "nested reentrant"])
def test_the_backward_pass_in_another_thread(mode: str) -> None:
    """There autograd counts its nodes anew, and what is recomputed is known all the same."""
    x, y = batch(6, 4, seed=3)
    x.requires_grad_()
    mixing = nfm.preset("nfm", sites=Mlp.sites[-1], seed=7)

    def found(mode: str | None) -> list[Tensor]:
        net = network(mode)
        loss = F.cross_entropy(net(x), y) + mixing(net, x, y, step=0).loss
        thread = threading.Thread(target=loss.backward)
        thread.start()
        thread.join()
        return [parameter.grad for parameter in net.parameters()]

    assert_same(found(mode), found(None))
    assert_different(found(mode), gradients(mixing(net := network(None), x, y, step=0).loss, net))


def test_other_draws_would_show() -> None:
    """The control: the same comparison with another seed goes red."""
    net, (x, y) = network("non-reentrant"), batch(6, 4)
    first, second = (nfm.preset("nfm", sites=Mlp.sites, seed=seed)(net, x, y) for seed in (7, 8))
    assert_different(gradients(first.loss, net), gradients(second.loss, net))


class WholeInOne(nn.Module):
    """Runs all of a network inside one checkpoint."""

    def __init__(self, mode: str | None) -> None:
        super().__init__()
        self.net, self.mode = build(Mlp), mode

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x) if self.mode is None else MODES[self.mode](self.net, x)


@pytest.mark.parametrize("name", SCHEMES)
@pytest.mark.parametrize("mode", ["non-reentrant", "non-reentrant, no rng", "no early stop", "selective"])
def test_the_whole_network_in_one_checkpoint(mode: str, name: str) -> None:
    """Attached to the network inside: its own forward pass is the one that is recomputed."""

    def gradients_of(outer: WholeInOne) -> list[list[Tensor]]:
        found = []
        with nfm.attach(outer.net, method(name)) as mixer:
            for step in range(STEPS):
                outputs = [outer(batch(6, 4, seed=2 * step + part)[0]) for part in range(2)]
                evaluate(outer.net, batch(6, 4)[0])
                losses = [
                    mixer.loss(out, batch(6, 4, seed=2 * step + part)[1]) for part, out in enumerate(outputs)
                ]
                found.append(gradients(losses[0] + losses[1], outer))
        return found

    for found, plain in zip(gradients_of(WholeInOne(mode)), gradients_of(WholeInOne(None)), strict=True):
        assert_same(found, plain)


@pytest.mark.parametrize("name", SCHEMES)
@pytest.mark.parametrize("mode", ["reentrant", "non-reentrant"])
def test_a_network_that_checkpoints_all_of_itself(mode: str, name: str) -> None:
    """The method on the outer network, the site inside the checkpointed part: legal in every mode."""
    sites = ["input" if site == "input" else f"net.{site}" for site in PRESETS[name].sites or Mlp.sites]
    x, y = batch(6, 4)
    x.requires_grad_()

    def found(outer: WholeInOne) -> list[list[Tensor]]:
        scheme = nfm.preset(name, sites=sites, seed=7)
        return [gradients(scheme(outer, x, y).loss, outer) for _ in range(STEPS)]

    for one, other in zip(found(WholeInOne(mode)), found(WholeInOne(None)), strict=True):
        assert_same(one, other)


def test_the_whole_network_in_one_reentrant_checkpoint_is_refused() -> None:
    net, (x, y) = build(Mlp), batch(6, 4)
    x.requires_grad_()
    with nfm.attach(net, "nfm", sites=Mlp.sites) as mixer:
        output = checkpoint(net, x, use_reentrant=True)
        with pytest.raises(AttachError, match="inside one reentrant checkpoint"):
            mixer.loss(output, y)
        with pytest.raises(
            AttachError, match="checkpoint its blocks, or the network alone with use_reentrant=False"
        ):
            F.cross_entropy(output, y).backward()
        assert torch.isfinite(mixer.loss(net(x), y)), "the network goes on working"


@pytest.mark.parametrize("site", ["input", "first"])
@pytest.mark.parametrize("mode", ["reentrant", "non-reentrant"])
def test_a_whole_step_in_a_checkpoint_is_refused(mode: str, site: str) -> None:
    """Its recomputation would be another step."""
    net, (x, y) = network(None), batch(6, 4)
    scheme = nfm.preset("nfm", sites=site, seed=7)
    loss = MODES[mode](lambda x: scheme(net, x, y).loss, x.requires_grad_())
    with pytest.raises(AttachError, match="the step itself, stands in one checkpoint"):
        loss.backward()


def test_a_loss_inside_the_graph_of_another_loss() -> None:
    """Two networks in one backward pass, one feeding the other, both recomputed."""

    def found(mode: str | None) -> list[Tensor]:
        first, second = network(mode), build(lambda: Mlp(call=MODES[mode] if mode else None), seed=1)
        link = build(lambda: nn.Linear(3, 4))
        x, y = batch(6, 4)
        with nfm.attach(first, method("nfm")) as one, nfm.attach(second, method("nfm")) as two:
            for _ in range(3):
                middle = first(x)
                loss = one.loss(middle, y) + two.loss(second(link(middle)), y)
        return gradients(loss, nn.ModuleList([first, second, link]))

    for mode in ("reentrant", "non-reentrant"):
        assert_same(found(mode), found(None))


def test_backward_twice_over_one_graph() -> None:
    def found(mode: str | None) -> list[Tensor]:
        net, (x, y) = network(mode), batch(6, 4)
        loss = method("nfm")(net, x, y).loss
        loss.backward(retain_graph=True)
        return gradients(loss, net)

    assert_same(found("non-reentrant"), found(None))


@pytest.mark.parametrize("mode", [None, *MODES])
def test_the_backward_pass_may_outlive_the_network(mode: str | None) -> None:
    """The graph keeps the parameters and the recomputed parts, not the network they belong to."""
    net, (x, y) = network(mode), batch(6, 4)
    parameters, gone = list(net.parameters()), weakref.ref(net)
    loss = nfm.NoisyFeatureMixup(sites="first", seed=7)(net, x, y).loss
    del net
    assert gone() is None
    loss.backward()
    reference = network(None)
    expected = gradients(nfm.NoisyFeatureMixup(sites="first", seed=7)(reference, x, y).loss, reference)
    assert_same([parameter.grad for parameter in parameters], expected)


def test_receipts_count_recomputations() -> None:
    net, (x, y) = network("non-reentrant"), batch(6, 4)
    outcome = nfm.NoisyFeatureMixup(sites="first")(net, x, y)
    assert outcome.draw.choice.uses == 1
    outcome.loss.backward()
    assert outcome.draw.choice.uses == 2, "the site was not recomputed: this file tests nothing"


@pytest.mark.parametrize("source", ["numpy", "own generator"])
def test_draws_from_a_moving_generator_corrupt_gradients_and_not_the_loss(source: str) -> None:
    """The control, and the reason for keyed draws: a hook in the style of the authors' code."""
    mover, own = np.random.default_rng(0), torch.Generator().manual_seed(0)

    def hook(module: nn.Module, args: tuple, out: Tensor) -> Tensor:
        if source == "numpy":
            return out + 0.4 * torch.from_numpy(mover.standard_normal(out.shape)).float()
        return out + 0.4 * torch.randn(out.shape, generator=own)

    def step(mode: str | None) -> tuple[Tensor, list[Tensor]]:
        nonlocal mover
        mover = np.random.default_rng(0)
        own.manual_seed(0)
        net, (x, y) = network(mode), batch(6, 4)
        net.first[0].register_forward_hook(hook)
        loss = F.cross_entropy(net(x), y)
        return loss, gradients(loss, net)

    (loss, found), (plain_loss, expected) = step("non-reentrant"), step(None)
    assert torch.equal(loss, plain_loss)
    assert_different(found, expected)
