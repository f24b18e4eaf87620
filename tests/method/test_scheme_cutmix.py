"""CutMix inside a network: the operator, the attached form, checkpointing, the compiler, refusals."""

from __future__ import annotations

import functools

import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch.utils.checkpoint import checkpoint

import nfm
from comparing import assert_different, assert_same, gradients, hooks_in
from nets import ConvNet, Mlp, batch, build
from nfm.core.box import paste_box_op, paste_box_transposed_op
from nfm.errors import AttachError, ShapeError, SiteError
from nfm.method.cutmix import BoxChoice, CutMix

SITES = ("input", "first")
PER_SAMPLE = pytest.mark.parametrize("weights", ["batch", "sample"])


def method(**settings) -> CutMix:
    return nfm.scheme("cutmix", **({"sites": SITES, "seed": 3} | settings))


def choice(weights: str = "batch") -> BoxChoice:
    return method(weights=weights).choose(SITES, step=0)


@PER_SAMPLE
@pytest.mark.parametrize("operator", [paste_box_op, paste_box_transposed_op], ids=["forward", "transposed"])
def test_operators_are_registered_soundly(operator, weights: str) -> None:
    made = choice(weights)
    x = batch(3, 2, 4, 4)[0].double().requires_grad_()
    torch.library.opcheck(operator, (x, *made.arguments.tensors, made.per_sample, 0))


@PER_SAMPLE
def test_the_gradient_is_the_transposed_map(weights: str) -> None:
    seen = 0
    for step in range(6):
        made = method(weights=weights).choose(SITES, step=step)
        x, g = (batch(5, 2, 4, 6, seed=seed)[0].double() for seed in (1, 2))
        forward = paste_box_op(x, *made.arguments.tensors, made.per_sample, 0)
        backward = paste_box_transposed_op(g, *made.arguments.tensors, made.per_sample, 0)
        assert torch.allclose((forward * g).sum(), (x * backward).sum(), rtol=1e-12)
        wrong = paste_box_op(g, *made.arguments.tensors, made.per_sample, 0)  # the control
        seen += not torch.allclose((forward * g).sum(), (x * wrong).sum(), rtol=1e-6)
    assert seen >= 3  # a permutation that is its own inverse hides it


@PER_SAMPLE
def test_first_and_second_derivatives(weights: str) -> None:
    made = choice(weights)
    x = batch(3, 2, 3, 3)[0].double().requires_grad_()

    def squared(x):
        return made.apply(x) ** 2

    assert torch.autograd.gradcheck(squared, x)
    assert torch.autograd.gradgradcheck(squared, x)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@PER_SAMPLE
def test_dtype_and_memory_format_are_kept_to_the_bit(dtype: torch.dtype, weights: str) -> None:
    x = batch(5, 4, 6, 6, dtype=dtype)[0]
    expected = choice(weights).apply(x)
    found = choice(weights).apply(x.contiguous(memory_format=torch.channels_last))
    assert expected.dtype == dtype
    assert found.is_contiguous(memory_format=torch.channels_last)
    assert_same([found], [expected])
    assert set(expected.flatten().tolist()) <= set(x.flatten().tolist())


@PER_SAMPLE
def test_the_attached_form_equals_the_functional_one(weights: str) -> None:
    one, two = build(ConvNet), build(ConvNet)
    functional, (x, y) = method(weights=weights), batch(5, 3, 6, 6)
    with nfm.attach(two, method(weights=weights)) as mixer:
        for _ in range(6):
            made, attached = functional(one, x, y), mixer.outcome(two(x), y)
            assert_same([attached.loss, attached.draw.weight], [made.loss, made.draw.weight])
            assert_same(gradients(attached.loss, two), gradients(made.loss, one))
    assert hooks_in(two) == 0


def test_attach_knows_it_by_name() -> None:
    net, (x, y) = build(ConvNet), batch(5, 3, 6, 6)
    with nfm.attach(net, "cutmix", alpha=0.5, seed=3) as mixer:
        assert "CutMix" in repr(mixer)
        assert torch.isfinite(mixer.loss(net(x), y))


def test_the_weight_of_the_label_is_that_of_the_site() -> None:
    """A box at a feature map is made of that map's pixels, so its share is a multiple of theirs."""
    x, y = batch(5, 3, 4, 4)
    for step in range(4):
        draw = method(sites="first")(build(ConvNet), x, y, step=step).draw
        assert float(draw.weight) * 16 == int(float(draw.weight) * 16)


class Checkpointed(ConvNet):
    """Each stage is recomputed in the backward pass."""

    def __init__(self, call) -> None:
        super().__init__()
        self.call = call

    def forward(self, x):
        return self.head(self.call(self.second, self.call(self.first, x)).mean((2, 3)))


@pytest.mark.parametrize("reentrant", [True, False])
@PER_SAMPLE
def test_gradients_under_activation_checkpointing(weights: str, reentrant: bool) -> None:
    plain = build(lambda: Checkpointed(lambda module, h: module(h)))
    net = build(lambda: Checkpointed(functools.partial(checkpoint, use_reentrant=reentrant)))
    x, y = batch(5, 3, 6, 6)
    x = x.requires_grad_()
    for step in range(4):
        expected = method(weights=weights)(plain, x, y, step=step)
        found = method(weights=weights)(net, x, y, step=step)
        assert_same(gradients(found.loss, net), gradients(expected.loss, plain))


@pytest.mark.usefixtures("fresh_compiler")
def test_compiled_equals_eager() -> None:
    eager, net = build(ConvNet), build(ConvNet)
    x, y = batch(5, 3, 6, 6)
    counter = CompileCounterWithBackend("aot_eager")
    with nfm.attach(eager, method()) as one, nfm.attach(net, method()) as two:
        forward = torch.compile(net, backend=counter, fullgraph=True)
        for _ in range(6):
            expected, found = one.outcome(eager(x), y), two.outcome(forward(x), y)
            assert_same([found.draw.weight], [expected.draw.weight])
            assert_same(gradients(found.loss, net), gradients(expected.loss, eager))
    assert (
        counter.frame_count == len(SITES) + 1
    )  # the box at the input is pasted before the network's own graph


def test_replay_pastes_the_same_boxes() -> None:
    net, (x, y) = build(ConvNet), batch(5, 3, 6, 6)
    made = method(weights="sample")(net, x, y)
    again = method(weights="sample").replay(made.draw)(build(ConvNet), x, y)
    assert_same([again.output, again.draw.weight], [made.output, made.draw.weight])
    other = method(weights="sample")(build(ConvNet), x, y, step=1)
    assert_different([other.output], [made.output])


def test_no_weight_before_the_forward_pass() -> None:
    with pytest.raises(AttachError, match="known after its forward pass"):
        choice().draw(5)


def test_features_without_rows_and_columns_are_refused() -> None:
    net, (x, y) = build(Mlp), batch(5, 4)
    with pytest.raises(ShapeError, match=r"feature maps .* got shape \(5, 4\)"):
        nfm.scheme("cutmix")(net, x, y)
    with pytest.raises(SiteError, match=r"at site 'input' to cut boxes from, got shape \(5, 4\)"):
        nfm.scheme("cutmix").check(net, x)
    assert hooks_in(net) == 0


def test_alpha_0_pastes_nothing() -> None:
    net, (x, y) = build(ConvNet), batch(5, 3, 6, 6)
    made = method(alpha=0.0, sites="input")(net, x, y)
    assert_same([made.output], [build(ConvNet)(x)])
    assert float(made.draw.weight) == 1


def test_several_inputs_are_cut_alike() -> None:
    class Two(nn.Module):
        def forward(self, left, right):
            return torch.stack([left.mean((1, 2, 3)), right.mean((1, 2, 3))], 1)

    x, y = batch(5, 3, 6, 6, classes=2)
    made = nfm.scheme("cutmix", inputs=("left", "right"), seed=3)(Two().train(), (x, x), y)
    assert_same([made.output[:, 0]], [made.output[:, 1]])
    assert_different([made.output[:, 0]], [x.mean((1, 2, 3))])
