"""Two threads on one network: each output has the draw that made it."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

import nfm
from comparing import assert_close, assert_same, hooks_in
from nets import Mlp, batch, build, run_by_hand

STEPS = 100


def in_two_threads(work: Callable[[int], None]) -> None:
    """Run work(0) and work(1) at once and raise what they raise."""
    errors: list[BaseException] = []

    def guarded(number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


@pytest.mark.parametrize("attached", [False, True])
def test_no_output_is_mispaired(attached: bool) -> None:
    net, method = build(Mlp), nfm.NoisyFeatureMixup(sites=Mlp.sites, seed=1)
    mixer = nfm.attach(net, method) if attached else None
    steps: list[int] = []

    def work(number: int) -> None:
        x, y = batch(6, 4, seed=number)
        for _ in range(STEPS):
            outcome = mixer.outcome(net(x), y) if mixer else method(net, x, y)
            assert torch.equal(outcome.output, run_by_hand(net, x, outcome.draw))
            weight, output, partner = float(outcome.draw.weight), outcome.output, outcome.draw.partner
            expected = weight * F.cross_entropy(output, y) + (1 - weight) * F.cross_entropy(
                output, y[partner]
            )
            assert_close([outcome.loss], [expected], relative=1e-6)
            torch.autograd.grad(outcome.loss, net.stem.weight)
            steps.append(outcome.draw.step)

    in_two_threads(work)
    assert sorted(steps) == list(range(2 * STEPS)), "two threads took the same step"
    if mixer:
        mixer.detach()
    assert hooks_in(net) == 0


class Meeting:
    """Holds thread 0 in the middle of its forward pass while thread 1 does a whole one."""

    def __init__(self, net: Mlp) -> None:
        self.inside, self.done = threading.Event(), threading.Event()
        net.stem.register_forward_hook(self.pause)

    def pause(self, *_: object) -> None:
        if threading.current_thread().name == "held":
            self.inside.set()
            assert self.done.wait(20)


def interleaved(net: Mlp, step: Callable[[int], object]) -> list[object]:
    """Return what step(0) and step(1) return, the second run wholly inside the first."""
    meeting, results = Meeting(net), [None, None]

    def held() -> None:
        results[0] = step(0)

    thread = threading.Thread(target=held, name="held")
    thread.start()
    assert meeting.inside.wait(20)
    try:
        results[1] = step(1)
    finally:
        meeting.done.set()
        thread.join()
    return results


@pytest.mark.parametrize("attached", [False, True])
def test_a_step_inside_another_threads_step(attached: bool) -> None:
    net, method = build(Mlp), nfm.NoisyFeatureMixup(sites="first", seed=1)
    mixer = nfm.attach(net, method) if attached else None
    batches = [batch(6, 4, seed=0), batch(6, 4, seed=1)]

    def step(number: int) -> nfm.Outcome:
        x, y = batches[number]
        return mixer.outcome(net(x), y) if mixer else method(net, x, y)

    for (x, _), outcome in zip(batches, interleaved(net, step), strict=True):
        assert_same([outcome.output], [run_by_hand(net, x, outcome.draw)])


def test_state_on_the_module_would_be_mispaired() -> None:
    """The control: a hook that reads its draw from the network it hangs on."""
    net, method = build(Mlp), nfm.NoisyFeatureMixup(sites="first", seed=1)
    net.first.register_forward_hook(lambda module, args, out: module.choice.again().apply(out))
    batches = [batch(6, 4, seed=0), batch(6, 4, seed=1)]

    def step(number: int) -> nfm.Draw:
        net.first.choice = method.choose(["first"])
        draw = net.first.choice.draw(6)
        return net(batches[number][0]), draw

    (output, draw), _ = interleaved(net, step)
    net.first._forward_hooks.clear()
    assert not torch.equal(output, run_by_hand(net, batches[0][0], draw))


def test_an_evaluation_in_another_thread_is_plain_while_one_trains() -> None:
    net, (x, y) = build(Mlp), batch(6, 4)
    with nfm.attach(net, "nfm", sites=Mlp.sites) as mixer:

        def step(number: int) -> torch.Tensor:
            if number == 0:
                return mixer.loss(net(x), y)
            with torch.no_grad():
                return net(x)

        _, evaluated = interleaved(net, step)
    assert torch.equal(evaluated, build(Mlp)(x))


def test_the_backward_pass_may_run_in_another_thread() -> None:
    net, (x, y) = build(Mlp), batch(6, 4)
    with nfm.attach(net, "nfm", sites=Mlp.sites, seed=1) as mixer:
        loss = mixer.loss(net(x), y)
        thread = threading.Thread(target=loss.backward)
        thread.start()
        thread.join()
    reference = build(Mlp)
    nfm.preset("nfm", sites=Mlp.sites, seed=1)(reference, x, y).loss.backward()
    assert_same([p.grad for p in net.parameters()], [p.grad for p in reference.parameters()])
