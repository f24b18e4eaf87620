"""Nothing piles up: no hooks, no draws, no receipts, no networks."""

from __future__ import annotations

import gc

import pytest
import torch

import nfm
from comparing import hooks_in
from nets import Mlp, batch, build
from nfm.core import receipts
from nfm.core.draw import Choice
from nfm.method import sockets
from nfm.method.ahead import STEPS


def alive() -> tuple[int, int, int]:
    """Count the draws, receipts and sockets that are kept."""
    gc.collect()
    choices = sum(type(thing) is Choice for thing in gc.get_objects())
    return choices, len(receipts._OPEN), len(sockets._SOCKETS)


def train(net: Mlp, steps: int, *, attached: bool) -> None:
    x, y = batch(6, 4)
    method = nfm.preset("nfm", sites=Mlp.sites)
    mixer = nfm.attach(net, method) if attached else None
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    installed = hooks_in(net)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = mixer.loss(net(x), y) if mixer else method(net, x, y).loss
        loss.backward()
        optimizer.step()
    assert hooks_in(net) == installed
    if mixer:
        mixer.detach()


@pytest.mark.parametrize("attached", [False, True])
def test_a_long_run_keeps_nothing(attached: bool) -> None:
    net = build(Mlp)
    train(net, 3, attached=attached)
    before = alive()
    train(net, 300, attached=attached)
    assert alive() == before


def test_forward_passes_without_a_loss_keep_nothing() -> None:
    net, (x, _) = build(Mlp), batch(6, 4)
    with nfm.attach(net, "nfm", sites=Mlp.sites):
        for _ in range(3):
            net(x)
        before = alive()
        for _ in range(3 * STEPS):  # choices are made so many at a time
            net(x)
        assert alive() == before


def test_networks_come_and_go() -> None:
    train(build(Mlp), 2, attached=True)
    before = alive()
    for _ in range(20):
        train(build(Mlp), 2, attached=True)
        train(build(Mlp), 2, attached=False)
    assert alive() == before


def test_what_is_kept_would_be_counted() -> None:
    """The control: draws that somebody holds."""
    net, (x, y) = build(Mlp), batch(6, 4)
    before = alive()
    kept = [nfm.preset("nfm", sites=Mlp.sites)(net, x, y).draw for _ in range(5)]
    assert alive() == (before[0] + 5, before[1] + 5, before[2] + 1)
    assert len(kept) == 5
