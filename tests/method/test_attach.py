"""The two-line form: the same steps as the functional form to the bit, and no trace after detach."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import nfm
from comparing import assert_different, assert_same, gradients, hooks_in
from nets import ConvNet, Mlp, StructuredNet, batch, build, first_part
from nfm.errors import AttachError
from nfm.method.presets import PRESETS

STEPS = 8


def method(name: str = "nfm", **settings) -> nfm.NoisyFeatureMixup:
    return nfm.preset(name, **({"sites": PRESETS[name].sites or Mlp.sites, "seed": 4} | settings))


@pytest.mark.parametrize("weights", ["batch", "sample"])
@pytest.mark.parametrize("name", list(PRESETS))
def test_both_forms_are_equal_to_the_bit(name: str, weights: str) -> None:
    first, second = build(Mlp), build(Mlp)
    functional = method(name, weights=weights)
    mixer = nfm.attach(second, method(name, weights=weights))
    for step in range(STEPS):
        x, y = batch(6, 4, seed=step)
        one = functional(first, x, y)
        two = mixer.outcome(second(x), y)
        assert one.draw.site == two.draw.site
        assert_same([one.output, one.loss], [two.output, two.loss])
        assert_same(gradients(one.loss, first), gradients(two.loss, second))


def test_another_step_is_another_mix() -> None:
    net, (x, y) = build(Mlp), batch(6, 4)
    with nfm.attach(net, method()) as mixer:
        first, second = (gradients(mixer.loss(net(x), y), net) for _ in range(2))
    assert_different(first, second)


def test_batch_statistics_see_the_mixed_batch_in_both_forms() -> None:
    first, second = build(ConvNet), build(ConvNet)
    x, y = batch(6, 3, 5, 5)
    functional = method(sites=ConvNet.sites)
    with nfm.attach(second, method(sites=ConvNet.sites)) as mixer:
        for _ in range(4):
            functional(first, x, y)
            mixer.loss(second(x), y)
    assert_same(list(first.state_dict().values()), list(second.state_dict().values()))


def test_any_number_of_losses() -> None:
    net, (x, y) = build(Mlp), batch(6, 4)
    with nfm.attach(net, method()) as mixer:
        output = net(x)
        losses = [mixer.loss(output, y) for _ in range(3)]
        assert_same(losses[:1] * 2, losses[1:])
        smooth = mixer.loss(output, y, nn.CrossEntropyLoss(label_smoothing=0.1))
        assert not torch.equal(smooth, losses[0])
        draw = mixer.draw_of(output, y)
        weight = float(draw.weight)
        by_hand = weight * F.cross_entropy(output, y) + (1 - weight) * F.cross_entropy(
            output, y[draw.partner]
        )
        assert torch.equal(losses[0], by_hand)


def test_anything_computed_from_the_output_has_its_draw() -> None:
    net, (x, y) = build(Mlp), batch(6, 4)
    head = build(lambda: nn.Linear(3, 3))
    with nfm.attach(net, method()) as mixer:
        output = net(x)
        draw = mixer.draw_of(output, y)
        derived = {"logits": head(output) * 2.0, "more": [output.log_softmax(1)]}
        for value in (derived, derived["logits"], derived["more"], (output[:, :2], None)):
            assert mixer.draw_of(value, y).choice is draw.choice


def test_outputs_of_several_passes_keep_their_own_draws() -> None:
    net, (x, y) = build(Mlp), batch(6, 4)
    reference = method()
    with nfm.attach(net, method()) as mixer:
        outputs = [net(x) for _ in range(4)]
        for step in (2, 0, 3, 1):
            expected = reference(net, x, y, step=step)
            assert torch.equal(mixer.loss(outputs[step], y), expected.loss)


def test_a_network_behind_another_one_keeps_its_own_draws() -> None:
    first, second = build(Mlp), build(lambda: nn.Sequential(nn.Linear(3, 3), nn.Tanh()))
    x, y = batch(6, 4)
    with nfm.attach(first, method(seed=1)) as one, nfm.attach(second, method("mixup", seed=2)) as two:
        output = second(first(x))
        assert one.draw_of(output, y).choice is not two.draw_of(output, y).choice
        assert one.draw_of(output, y).site in Mlp.sites
        assert two.draw_of(output, y).site == "input"


@pytest.mark.parametrize("kind", ["tuple", "dict", "dataclass"])
def test_networks_that_return_structures(kind: str) -> None:
    class Net(StructuredNet):
        def forward(self, x: Tensor):
            return self.encoder(x)

    net, (x, y) = build(lambda: Net(kind)), batch(6, 4)

    def criterion(output, y: Tensor) -> Tensor:
        return F.cross_entropy(first_part(output), y)

    with nfm.attach(net, method("mixup")) as mixer:
        loss = mixer.loss(net(x), y, criterion)
    assert torch.equal(loss, method("mixup")(net, x, y, criterion=criterion).loss)


def plain_of(net: nn.Module, make=Mlp) -> nn.Module:
    plain = build(make)
    plain.load_state_dict(net.state_dict())
    return plain


@pytest.mark.parametrize("mode", ["eval", "no_grad", "inference"])
@pytest.mark.parametrize("make", [Mlp, ConvNet])
def test_outside_of_training_the_network_is_the_plain_one(mode: str, make) -> None:
    net = build(make)
    x, y = batch(6, 4) if make is Mlp else batch(6, 3, 5, 5)
    mixer = nfm.attach(net, method(sites=make.sites))
    mixer.loss(net(x), y).backward()
    plain = plain_of(net, make)
    context = {"eval": torch.enable_grad, "no_grad": torch.no_grad, "inference": torch.inference_mode}[mode]
    for model in (net, plain):
        model.train(mode != "eval")
    with context():
        outputs = [model(x) for model in (net, plain)]
        assert_same(outputs[:1], outputs[1:])
        assert torch.equal(mixer.loss(outputs[0], y), F.cross_entropy(outputs[1], y))
        outcome = method(sites=make.sites)(net, x, y)
        assert outcome.draw.choice is None
        assert outcome.draw.levels == (0.0, 0.0)
    if mode == "eval":
        assert torch.equal(outcome.output, outputs[1])
        assert_same(gradients(mixer.loss(net(x), y), net), gradients(F.cross_entropy(plain(x), y), plain))
    assert mixer.method.step == 1, "an evaluation took a step"
    mixer.detach()


def test_a_frozen_part_in_evaluation_mode_does_not_stop_the_mixing() -> None:
    net, (x, y) = build(ConvNet), batch(6, 3, 5, 5)
    net.first.eval()
    with nfm.attach(net, method(sites=["first"])) as mixer:
        output = net(x)
        assert mixer.draw_of(output, y).choice is not None
        assert not torch.equal(output, net.eval()(x))


def test_a_part_called_by_itself_is_plain() -> None:
    net, (x, y) = build(Mlp), batch(6, 4)
    with nfm.attach(net, method(sites=["first"])) as mixer:
        for _ in range(2):
            h = net.stem(x)
            assert torch.equal(net.first(h), build(Mlp).first(h))
            mixer.loss(net(x), y).backward()


def test_state_dict_keys_are_the_plain_ones() -> None:
    net = build(ConvNet)
    with nfm.attach(net, method(sites=ConvNet.sites)):
        assert list(net.state_dict()) == list(build(ConvNet).state_dict())
        build(ConvNet).load_state_dict(net.state_dict(), strict=True)
        assert [name for name, _ in net.named_modules()] == [
            name for name, _ in build(ConvNet).named_modules()
        ]


def test_detach_removes_every_trace_and_nothing_of_others() -> None:
    net, (x, y) = build(Mlp), batch(6, 4)
    before = {name: dict(vars(module)) for name, module in net.named_modules()}
    calls = []
    handle = net.first.register_forward_hook(lambda *_: calls.append("foreign"))
    mixer = nfm.attach(net, method())
    assert hooks_in(net) == 1 + 2 + 3  # the foreign one, two of the root, one a site inside
    mixer.loss(net(x), y).backward()
    mixer.detach()
    mixer.detach()
    assert hooks_in(net) == 1
    net(x)
    assert calls == ["foreign"] * 2
    handle.remove()
    for name, module in net.named_modules():
        assert vars(module).keys() == before[name].keys()
    assert torch.equal(net(x), build(Mlp)(x))
    with pytest.raises(AttachError, match=r"detached; call nfm.attach"):
        mixer.loss(net(x), y)
    assert "detached from Mlp" in repr(mixer)


def test_a_loss_may_go_backward_after_detach() -> None:
    first, second = build(Mlp), build(Mlp)
    x, y = batch(6, 4)
    mixer = nfm.attach(first, method())
    loss = mixer.loss(first(x), y)
    mixer.detach()
    assert_same(gradients(loss, first), gradients(method()(second, x, y).loss, second))
    assert hooks_in(first) == 0


def test_attaching_again_after_detach() -> None:
    net, (x, y) = build(Mlp), batch(6, 4)
    for seed in (1, 2):
        mixer = nfm.attach(net, method(seed=seed))
        assert torch.equal(mixer.loss(net(x), y), method(seed=seed)(build(Mlp), x, y).loss)
        mixer.detach()
    assert hooks_in(net) == 0


def test_an_attached_network_can_be_forgotten() -> None:
    net = build(Mlp)
    gone = weakref.ref(net)
    mixer = nfm.attach(net, method())
    mixer.loss(net(batch(6, 4)[0]), batch(6, 4)[1]).backward()
    del net
    gc.collect()
    assert gone() is None
    with pytest.raises(AttachError, match="the network is gone"):
        _ = mixer.root
    mixer.detach()


def test_the_mixer_tells_what_it_does() -> None:
    net = build(Mlp)
    with nfm.attach(net, "nfm_authors", sites=["first"]) as mixer:
        assert "attached to Mlp at first" in repr(mixer)
        assert "rms 0.131, 0.0378" in repr(mixer)
        assert mixer.root is net


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_every_batch_size_works(size: int) -> None:
    x, y = batch(size, 4)
    first, second = build(Mlp), build(Mlp)
    with nfm.attach(second, method()) as mixer:
        for _ in range(6):
            one, two = method()(first, x, y, step=mixer.method.step), mixer.outcome(second(x), y)
            assert torch.isfinite(one.loss)
            assert_same(gradients(one.loss, first), gradients(two.loss, second))
            assert sorted(two.draw.partner.tolist()) == list(range(size))


def test_gradient_accumulation_is_the_sum_of_its_micro_batches() -> None:
    net, reference = build(Mlp), build(Mlp)
    with nfm.attach(net, method()) as mixer:
        for part in range(4):
            x, y = batch(5, 4, seed=part)
            (mixer.loss(net(x), y) / 4).backward()
    functional, expected = method(), None
    for part in range(4):
        x, y = batch(5, 4, seed=part)
        now = gradients(functional(reference, x, y).loss / 4, reference)
        expected = now if expected is None else [a + b for a, b in zip(expected, now, strict=True)]
    assert_same([p.grad for p in net.parameters()], expected)


def test_accumulation_without_mixing_equals_the_whole_batch() -> None:
    net, (x, y) = build(Mlp).double(), batch(32, 4, dtype=torch.float64)
    whole = gradients(nfm.preset("erm")(net, x, y).loss, net)
    net.zero_grad()
    for part in range(4):
        rows = slice(8 * part, 8 * part + 8)
        (nfm.preset("erm")(net, x[rows], y[rows]).loss / 4).backward()
    for parameter, expected in zip(net.parameters(), whole, strict=True):
        assert torch.allclose(parameter.grad, expected, atol=1e-12)


def test_a_part_may_outlive_its_attached_network() -> None:
    def part_of_a_trained_network() -> nn.Module:
        net, (x, y) = build(Mlp), batch(6, 4)
        nfm.attach(net, "nfm", sites=["first"]).loss(net(x), y).backward()
        return net.first

    assert part_of_a_trained_network()(torch.randn(2, 8)).shape == (2, 8)
