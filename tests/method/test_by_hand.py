"""The functional form without hooks on the root: what others hung on the root still comes before and after."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import nfm
from comparing import assert_different, assert_same, hooks_in
from nets import Mlp, batch, build


def doubled(module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
    return (2 * args[0],)


def halved(module: nn.Module, args: tuple[Any, ...], output: Tensor) -> Tensor:
    return output / 2


def outcomes(*, attached: bool, before: bool, after: bool, sites: str) -> list[Tensor]:
    net, method = build(Mlp), nfm.preset("nfm", sites=sites, seed=3)
    if before:
        net.register_forward_pre_hook(doubled)
    if after:
        net.register_forward_hook(halved)
    x, y = batch(6, 4)
    if attached:
        with nfm.attach(net, method) as mixer:
            output = net(x)
            return [output, mixer.loss(output, y)]
    made = method(net, x, y)
    return [made.output, made.loss]


@pytest.mark.parametrize("sites", ["input", Mlp.sites[-1]])
@pytest.mark.parametrize(("before", "after"), [(True, False), (False, True), (True, True)])
def test_hooks_of_others_act_as_when_attached(sites: str, before: bool, after: bool) -> None:
    functional, attached = (
        outcomes(attached=attached, before=before, after=after, sites=sites) for attached in (False, True)
    )
    assert_same(functional, attached)
    assert_different(functional, outcomes(attached=False, before=False, after=False, sites=sites))


def test_the_root_has_no_hook_while_it_runs() -> None:
    counts: list[int] = []

    class Counting(Mlp):
        def forward(self, x: Tensor) -> Tensor:
            counts.append(len(self._forward_pre_hooks) + len(self._forward_hooks))
            return super().forward(x)

    net, (x, y) = build(Counting), batch(6, 4)
    nfm.preset("nfm", sites=Mlp.sites, seed=3)(net, x, y)
    with nfm.attach(net, "nfm", sites=Mlp.sites) as mixer:
        mixer.loss(net(x), y)
    assert counts == [0, 2]
    assert hooks_in(net) == 0


def test_a_step_inside_an_error_leaves_the_network_plain() -> None:
    class Failing(Mlp):
        fails = True

        def forward(self, x: Tensor) -> Tensor:
            output = super().forward(x)
            if self.fails:
                raise KeyboardInterrupt
            return output

    net, (x, y) = build(Failing), batch(6, 4)
    method = nfm.preset("nfm", sites=Mlp.sites, seed=3)
    with pytest.raises(KeyboardInterrupt):
        method(net, x, y)
    net.fails = False
    assert hooks_in(net) == 0
    assert_same([net(x)], [build(Mlp)(x)])
    expected = nfm.preset("nfm", sites=Mlp.sites, seed=3)(build(Mlp), x, y, step=1)
    assert_same([method(net, x, y).loss], [expected.loss])
    assert torch.isfinite(expected.loss)
