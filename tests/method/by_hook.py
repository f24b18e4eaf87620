"""One training step with a hook written by hand: the reference for networks that cannot be taken apart."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

import nfm
from comparing import assert_same, gradients, hooks_in

Criterion = Callable[[Any, Tensor], Tensor]


def mixed_part(output: Any, part: str, change: Callable[[Tensor], Tensor]) -> Any:
    """Return `output` with one tensor changed; tuples and mappings keep the rest."""
    if isinstance(output, Tensor):
        return change(output)
    if isinstance(output, tuple):
        index = int(part or 0)
        return (*output[:index], change(output[index]), *output[index + 1 :])
    output[part] = change(output[part])
    return output


def step_by_hook(net: nn.Module, x: Any, y: Tensor, draw: nfm.Draw, criterion: Criterion) -> Tensor:
    """Return the loss of one step in which `draw` acts at its site."""
    name, _, part = draw.site.partition(":")
    choice = draw.choice.again()
    handle = None
    if name == "input":
        x = choice.apply(x)
    else:
        handle = net.get_submodule(name).register_forward_hook(
            lambda module, args, output: mixed_part(output, part, choice.apply)
        )
    output = net(**x) if isinstance(x, Mapping) else net(x)
    if handle is not None:
        handle.remove()
    return loss_by_hand(output, y, draw, criterion)


def loss_by_hand(output: Any, y: Tensor, draw: nfm.Draw, criterion: Criterion = F.cross_entropy) -> Tensor:
    """Return the mixed loss; two cross-entropies have one log-softmax."""
    if criterion is F.cross_entropy:
        output, criterion = F.log_softmax(output, 1), F.nll_loss
    weight = float(draw.weight)
    return weight * criterion(output, y) + (1 - weight) * criterion(output, y[draw.partner])


def assert_works_inside(
    net: nn.Module,
    x: Any,
    y: Tensor,
    *,
    sites: list[str],
    criterion: Criterion = F.cross_entropy,
    steps: int = 6,
) -> None:
    """Check the sites, then compare both forms with the hook written by hand, gradient by gradient."""
    plan = nfm.NoisyFeatureMixup(sites=sites).check(net, x)
    assert [row.site for row in plan.rows] == sites
    assert [row.site for row in plan.rows if row.bypassed] == []
    net.train()
    visited = set()
    for step in range(steps):
        scheme = nfm.NoisyFeatureMixup(sites=sites, seed=2)
        outcome = scheme(net, x, y, criterion=criterion, step=step)
        found = gradients(outcome.loss, net)
        visited.add(outcome.draw.site)
        assert_same(found, gradients(step_by_hook(net, x, y, outcome.draw, criterion), net))
        with nfm.attach(net, nfm.NoisyFeatureMixup(sites=sites, seed=2)) as mixer:
            mixer.load_state_dict({"seed": 2, "step": step})
            output = net(**x) if isinstance(x, Mapping) else net(x)
            assert_same(gradients(mixer.loss(output, y, criterion), net), found)
        assert hooks_in(net) == 0
    assert len(visited) > 1 or len(sites) == 1
