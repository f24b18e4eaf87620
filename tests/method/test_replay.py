"""Replay: the same mix for a teacher, another view or another mode."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F

import nfm
from comparing import assert_same, gradients, hooks_in
from nets import ConvNet, Mlp, batch, build, run_by_hand
from nfm.errors import UsageError


def method(**settings) -> nfm.NoisyFeatureMixup:
    return nfm.preset("nfm", **({"sites": Mlp.sites, "seed": 4} | settings))


@pytest.mark.parametrize("mode", ["eval", "no_grad", "inference", "train"])
@pytest.mark.parametrize("weights", ["batch", "sample"])
def test_a_teacher_gets_the_students_mix_in_any_mode(mode: str, weights: str) -> None:
    student, teacher, (x, y) = build(Mlp), build(Mlp, seed=1), batch(6, 4)
    ours = method(weights=weights)
    context = {"no_grad": torch.no_grad, "inference": torch.inference_mode}.get(mode, torch.enable_grad)
    for _ in range(6):
        draw = ours(student, x, y).draw
        step = ours.step
        teacher.train(mode != "eval")
        with context():
            outcome = ours.replay(draw)(teacher, x, y)
            assert torch.equal(outcome.output, run_by_hand(teacher, x, draw))
            assert not torch.equal(outcome.output, teacher(x))
        assert_same([outcome.draw.partner, outcome.draw.weight], [draw.partner, draw.weight])
        assert ours.step == step, "a replay took a step"
        assert hooks_in(teacher) == 0


def test_a_replay_of_the_same_network_repeats_loss_and_gradients() -> None:
    net, (x, y) = build(Mlp), batch(6, 4)
    ours = method()
    first = ours(net, x, y)
    expected = gradients(first.loss, net)
    again = ours.replay(first.draw)(net, x, y)
    assert torch.equal(again.loss, first.loss)
    assert_same(gradients(again.loss, net), expected)
    other = ours(net, x, y)
    assert not torch.equal(other.loss, first.loss)


def test_a_replay_in_evaluation_mode_leaves_the_buffers() -> None:
    net, (x, y) = build(ConvNet), batch(6, 3, 5, 5)
    ours = method(sites=ConvNet.sites)
    draw = ours(net, x, y).draw
    net.eval()
    before = copy.deepcopy(net.state_dict())
    ours.replay(draw)(net, x, y)
    assert_same(list(net.state_dict().values()), list(before.values()))


def test_the_draw_of_a_step_can_be_made_again_by_its_number() -> None:
    net, (x, y) = build(Mlp), batch(6, 4)
    losses = [method()(net, x, y, step=step).loss for step in range(4)]
    running = method()
    assert_same([running(net, x, y).loss for _ in range(4)], losses)
    assert_same([method()(net, x, y, step=2).loss], losses[2:3])


@pytest.mark.parametrize("mode", ["eval", "no_grad", "train"])
def test_an_attached_network_replays_in_a_block(mode: str) -> None:
    net, (x, y) = build(Mlp), batch(6, 4)
    with nfm.attach(net, method()) as mixer:
        output = net(x)
        draw = mixer.draw_of(output, y)
        step = mixer.method.step
        net.train(mode != "eval")
        with torch.set_grad_enabled(mode != "no_grad"):
            with mixer.replay(draw):
                again = net(x)
            assert torch.equal(again, output)
            assert mixer.method.step == step
            if mode != "train":
                assert torch.equal(net(x), build(Mlp)(x)), "the block is over"
        net.train()
        assert torch.equal(mixer.loss(net(x), y), method()(build(Mlp), x, y, step=step).loss)


def test_the_loss_of_a_replayed_pass_knows_its_draw() -> None:
    net, (x, y) = build(Mlp), batch(6, 4)
    with nfm.attach(net, method()) as mixer:
        first = mixer.outcome(net(x), y)
        net(x)
        with mixer.replay(first.draw):
            again = net(x)
        assert torch.equal(mixer.loss(again, y), first.loss)


def test_a_teacher_of_an_attached_student() -> None:
    student, (x, y) = build(Mlp), batch(6, 4)
    with nfm.attach(student, method()) as mixer:
        teacher = copy.deepcopy(student).eval()
        outcome = mixer.outcome(student(x), y)
        with torch.no_grad():
            target = mixer.method.replay(outcome.draw)(teacher, x, y).output
        assert torch.equal(target, outcome.output.detach()), "the same weights and the same mix"
        F.mse_loss(outcome.output, target).backward()


def test_a_plain_draw_cannot_be_replayed_in_a_block() -> None:
    net, (x, y) = build(Mlp), batch(6, 4)
    with nfm.attach(net, method()) as mixer:
        with torch.no_grad():
            plain = mixer.draw_of(net(x), y)
        with pytest.raises(UsageError, match="expected a draw of a mixed forward pass"), mixer.replay(plain):
            pass


def test_a_plain_draw_given_to_the_method_means_a_plain_pass() -> None:
    net, (x, y) = build(Mlp), batch(6, 4)
    with torch.no_grad():
        plain = method()(net, x, y).draw
    outcome = method()(net, x, y, draw=plain)
    assert torch.equal(outcome.output, net(x))
    assert torch.equal(outcome.loss, F.cross_entropy(net(x), y))
