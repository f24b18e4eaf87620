"""The one opaque operator: registered soundly, differentiable twice, and true to dtype and layout."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import nfm
from nfm.core import receipts
from nfm.core.draw import Choice
from nfm.core.mixing import mix
from nfm.core.noise import perturb
from nfm.core.operator import check_feature, mix_noise_op, mix_noise_transposed_op, noise_of
from nfm.errors import ShapeError
from nfm.randomness import fold

DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64]
PAPER = nfm.Noise(0.4, 0.2)
FORMATS = [torch.contiguous_format, torch.channels_last]


def choice(noise: nfm.Noise = PAPER, *, alpha: float = 1.0, per_sample: bool = False, key: int = 3) -> Choice:
    return Choice(
        "input", key=key, step=0, alpha=alpha, beta=alpha, per_sample=per_sample, dominant=False, noise=noise
    )


def values(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def arguments(x: Tensor, made: Choice) -> tuple:
    noise = made.noise
    return (
        x, *made.arguments.tensors, made.per_sample, made.dominant, noise.add_law, noise.mult_law,
        noise.granularity, noise.sparsity, noise.relative, 0,
    )  # fmt: skip


@pytest.mark.parametrize("per_sample", [False, True])
@pytest.mark.parametrize("operator", [mix_noise_op, mix_noise_transposed_op], ids=["forward", "transposed"])
def test_operators_are_registered_soundly(operator, per_sample: bool) -> None:
    x = values(4, 3, 2, 2, dtype=torch.float32).to(memory_format=torch.channels_last).requires_grad_()
    results = torch.library.opcheck(operator, arguments(x, choice(per_sample=per_sample)))
    assert set(results.values()) == {"SUCCESS"}


NOISES = [
    nfm.Noise(),
    nfm.Noise(0.4, 0.2),
    nfm.Noise.authors(1.0, 0.5),
    nfm.Noise(0.4, 0.2, sparsity=0.5, granularity="channel"),
]


@pytest.mark.parametrize("noise", NOISES, ids=repr)
@pytest.mark.parametrize("per_sample", [False, True])
def test_first_and_second_derivatives(noise: nfm.Noise, per_sample: bool) -> None:
    made = choice(noise, per_sample=per_sample)
    x = values(3, 2, 2).requires_grad_()

    def curved(x: Tensor) -> Tensor:
        return made.apply(x.sin()).exp()

    assert torch.autograd.gradcheck(curved, (x,))
    assert torch.autograd.gradgradcheck(curved, (x,))


def test_the_gradient_check_can_fail() -> None:
    """The control: a transposed map of another draw is no gradient."""
    first, second = choice(key=3), choice(key=4)

    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return first.apply(x)

        @staticmethod
        def backward(ctx, g):
            return mix_noise_transposed_op(*arguments(g, second))

    with pytest.raises(RuntimeError, match="Jacobian mismatch"):
        torch.autograd.gradcheck(Wrong.apply, (values(3, 2).requires_grad_(),))


def test_a_second_backward_pass_is_exact() -> None:
    """Against the same map in plain tensor operations."""
    made = choice()
    x = values(5, 4).requires_grad_()
    add, mult = noise_of(
        x, made.arguments.numbers, fold(made.arguments.keys.noise, 0),
        add_law="gaussian", mult_law="gaussian", granularity="element", sparsity=0.0,
    )  # fmt: skip
    pairing = made.draw(5).pairing

    def second(apply) -> Tensor:
        (g,) = torch.autograd.grad(apply(x).pow(3).sum(), x, create_graph=True)
        return torch.autograd.grad(g.square().sum(), x)[0]

    ours = second(made.apply)
    theirs = second(lambda x: perturb(mix(x, pairing), add=add, mult=mult))
    assert torch.allclose(ours, theirs, rtol=1e-12)
    assert not torch.allclose(ours, second(choice(key=4).apply), rtol=1e-3)


@pytest.mark.parametrize(("dtype", "layout"), list(itertools.product(DTYPES, FORMATS)))
@pytest.mark.parametrize("noise", [nfm.Noise(), nfm.Noise(0.4, 0.2), nfm.Noise(0.4, relative=True)], ids=repr)
@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_dtype_and_memory_format_are_kept(dtype, layout, noise: nfm.Noise, alpha: float) -> None:
    """The authors' noise is float32 on the first GPU, whatever the feature is (trap R1)."""
    x = values(4, 3, 5, 5, dtype=dtype).contiguous(memory_format=layout).requires_grad_()
    made = choice(noise, alpha=alpha)
    out = made.apply(x)
    (grad,) = torch.autograd.grad(out.float().square().sum(), x)
    for tensor in (out, grad):
        assert tensor.dtype == dtype
        assert tensor.device == x.device
        assert tensor.is_contiguous(memory_format=layout)
        assert tensor.stride() == x.stride()
    exact = made.apply(x.detach().double().contiguous())
    rounding = torch.finfo(dtype).eps
    assert torch.allclose(out.double(), exact, rtol=2 * rounding, atol=2 * rounding)


def test_noise_does_not_depend_on_dtype_or_layout() -> None:
    made, zeros = choice(nfm.Noise(0.4)), torch.zeros(4, 3, 5, 5)
    noise = made.apply(zeros)
    assert torch.equal(made.apply(zeros.contiguous(memory_format=torch.channels_last)), noise)
    assert torch.equal(made.apply(zeros.double()), noise.double())
    assert torch.equal(made.apply(zeros.bfloat16()), noise.bfloat16())
    assert torch.equal(made.apply(zeros.transpose(2, 3)), noise)


@given(
    shape=st.lists(st.integers(1, 6), min_size=1, max_size=4),
    dtype=st.sampled_from(DTYPES),
    alpha=st.sampled_from([0.0, 1e-8, 0.2, 1.0, 50.0]),
    per_sample=st.booleans(),
    add=st.floats(0, 2),
    mult=st.floats(0, 1),
    granularity=st.sampled_from(["element", "channel", "sample"]),
    sparsity=st.sampled_from([0.0, 0.3]),
    key=st.integers(0, 2**40),
)
def test_any_feature_equals_the_equation(
    shape, dtype, alpha, per_sample, add, mult, granularity, sparsity, key
) -> None:
    noise = nfm.Noise(add, mult, sparsity=sparsity, granularity=granularity)
    made = choice(noise, alpha=alpha, per_sample=per_sample, key=key)
    x = values(*shape, seed=key % 1000, dtype=dtype)
    before = x.clone()
    out = made.apply(x)
    assert out.dtype == dtype
    assert out.shape == x.shape
    assert torch.equal(x, before)
    assert out.data_ptr() != x.data_ptr()
    assert torch.equal(out, made.apply(x))
    wide = x.double()
    xi_add, xi_mult = noise_of(
        wide, made.arguments.numbers, fold(made.arguments.keys.noise, 0),
        add_law="gaussian", mult_law="gaussian", granularity=granularity, sparsity=sparsity,
    )  # fmt: skip
    pairing = made.draw(len(x)).pairing
    weight = pairing.weight.reshape(-1, *[1] * (x.ndim - 1))
    expected = weight * wide + (1 - weight) * wide[pairing.partner]
    expected = expected * (1 + xi_mult) if xi_mult is not None else expected
    expected = expected + xi_add if xi_add is not None else expected
    rounding = 4 * torch.finfo(dtype).eps
    scale = float(expected.abs().max() + wide.abs().max())
    assert (out.double() - expected).abs().max() <= rounding * scale


def test_nothing_big_is_kept_for_the_backward_pass() -> None:
    x = values(64, 128, dtype=torch.float32).requires_grad_()
    kept = []

    def pack(tensor: Tensor) -> Tensor:
        kept.append(tensor.numel() * tensor.element_size())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        choice().apply(x)
    assert 0 < sum(kept) <= 64 + 24  # numbers and key, against 32 kB of features


def test_batch_of_one_is_its_own_partner() -> None:
    x = values(1, 4)
    assert torch.allclose(choice(nfm.Noise()).apply(x), x, rtol=1e-15)
    assert not torch.equal(choice().apply(x), x)


def test_receipts_count_forward_passes_and_are_forgotten_with_the_draw() -> None:
    made = choice()
    serial = made.arguments.keys.serial
    assert made.uses == 0
    x = values(3, 2).requires_grad_()
    out = made.apply(x)
    out.sum().backward()
    assert made.uses == 1
    made.apply(x)
    assert made.uses == 2
    del made, out
    assert serial not in receipts._OPEN


@pytest.mark.parametrize(
    "x",
    [
        torch.zeros(3, dtype=torch.int64),
        torch.zeros(3, dtype=torch.bool),
        torch.zeros(3, dtype=torch.uint8),
        torch.zeros(3, dtype=torch.complex64),
        torch.zeros(3, 3).to_sparse(),
        [1.0, 2.0],
        None,
    ],
    ids=["int", "bool", "uint8", "complex", "sparse", "list", "none"],
)
def test_what_cannot_be_mixed_is_refused_by_place(x) -> None:
    with pytest.raises(ShapeError, match="at site 'stem'"):
        check_feature(x, "stem")


@pytest.mark.parametrize("device", ["cuda", "mps"])
def test_other_devices_keep_device_and_law(device: str) -> None:
    available = torch.cuda.is_available() if device == "cuda" else torch.backends.mps.is_available()
    if not available:
        pytest.skip(f"no {device} device here: features on {device} were not tested")
    x = values(64, 32, 8, dtype=torch.float32).to(device).requires_grad_()
    made = choice()
    out = made.apply(x)
    (grad,) = torch.autograd.grad(out.sum(), x)
    assert out.device == x.device == grad.device
    assert torch.equal(out, made.apply(x))
    quiet = choice(nfm.Noise())
    assert torch.allclose(quiet.apply(x).cpu(), quiet.apply(x.cpu()), atol=1e-6)
    added = choice(nfm.Noise(0.4), alpha=0.0).apply(torch.zeros_like(x))
    assert abs(float(added.std()) - 0.4) < 4.5 * 0.4 / (2 * added.numel()) ** 0.5
