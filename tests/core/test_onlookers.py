"""The shortest way to an operator gives what the operator gives, and is not taken where somebody looks on."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

import nfm
from comparing import assert_different, assert_same
from nfm.core.compiled import problem
from nfm.core.draw import Choice, Draw
from nfm.core.kernel import KERNELS, use_kernel
from nfm.core.mixing import mix
from nfm.core.onlookers import watched
from nfm.core.operator import drawn_pairing, mix_noise_op


def choice(*, per_sample: bool = False) -> Choice:
    noise = nfm.Noise(0.4, 0.2)
    return Choice(
        "input", key=3, step=0, alpha=1.0, beta=1.0, per_sample=per_sample, dominant=False, noise=noise
    )


def images(*, seed: int = 0) -> Tensor:
    return torch.randn(5, 3, 4, 4, generator=torch.Generator().manual_seed(seed))


def by_operator(x: Tensor, made: Choice) -> Tensor:
    noise = made.noise
    return mix_noise_op(
        x, *made.arguments.tensors, made.per_sample, made.dominant, noise.add_law, noise.mult_law,
        noise.granularity, noise.sparsity, noise.relative, 0,
    )  # fmt: skip


class Seen(TorchDispatchMode):
    """Write down the names of the operators that are called."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def derivatives(function: Any, x: Tensor) -> list[Tensor]:
    """Return the value, a gradient that depends on x, and the gradient of that."""
    x = x.clone().requires_grad_()
    value = function(x)
    (first,) = torch.autograd.grad((value**3).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad((first**2).sum(), x)
    return [value.detach(), first.detach(), second]


@pytest.mark.parametrize("per_sample", [False, True])
def test_both_ways_give_the_same_values_and_derivatives(per_sample: bool) -> None:
    made = choice(per_sample=per_sample)
    direct, registered = (
        derivatives(function, images())
        for function in (lambda x: made.apply(x), lambda x: by_operator(x, made))
    )
    assert_same(direct, registered)
    assert_different(direct, derivatives(lambda x: made.apply(x), images(seed=1)))


def test_a_mode_sees_the_operator_and_not_its_inside() -> None:
    x, made = images(), choice().ready()
    with Seen() as seen:
        inside = made.apply(x)
    assert seen.names == ["nfm.mix_noise.default"]
    assert_same([inside], [made.apply(x)])


def test_a_profile_shows_the_operator() -> None:
    made = choice()
    with torch.profiler.profile() as profile:
        made.apply(images())
    assert "nfm::mix_noise" in {event.key for event in profile.key_averages()}


def test_who_looks_on_is_told() -> None:
    assert not watched(images())
    assert not watched(torch.nn.Parameter(images()))
    assert watched(images().as_subclass(type("Own", (Tensor,), {})))
    with Seen():
        assert watched(images())
    with torch.device("cpu"):  # a mode of torch functions
        assert watched(images())


def test_what_a_draw_tells_can_be_changed_without_changing_the_step() -> None:
    made, x = choice(), images().requires_grad_()
    expected = torch.autograd.grad(made.apply(x).square().sum(), x)
    output = made.apply(x)
    made.draw(len(x)).partner.zero_()
    assert_same(torch.autograd.grad(output.square().sum(), x), expected)
    fresh = drawn_pairing(3, len(x), *made.arguments.numbers[:3], per_sample=False, dominant=False)
    assert sorted(fresh.partner.tolist()) == list(range(len(x)))


def test_a_draw_first_asked_for_in_inference_mode_serves_training() -> None:
    made = choice()
    with torch.inference_mode():
        made.draw(6)
    targets = torch.rand(6, 2, requires_grad=True)
    made.draw(6).mix_targets(targets).sum().backward()  # an inference tensor cannot be kept for this
    assert targets.grad is not None


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_step_in_inference_mode_leaves_nothing_behind(kernel: str) -> None:
    """Memory, partners and numbers made there serve the training steps after it."""
    if kernel == "c" and problem():
        pytest.skip(f"no compiled kernel here: {problem()}")
    with use_kernel(kernel):
        with torch.inference_mode():
            made = choice()
            made.apply(images())
            assert len(made.draw(5).pairing.inverse) == 5
        x = images().requires_grad_()
        output = made.apply(x)
        (slope,) = torch.autograd.grad(output.square().sum(), x)
        (expected,) = torch.autograd.grad(by_operator(x, choice()).square().sum(), x)
    assert_same([slope], [expected])
    assert_different([slope], [2 * x.detach()])


@pytest.mark.parametrize("weights", ["batch", "sample"])
def test_what_a_mode_made_is_not_kept(weights: str) -> None:
    method, x = nfm.scheme("mixup", sites="input", weights=weights, seed=11), images()
    with FakeTensorMode() as mode:
        chosen = method.choose(("input",), step=4)
        assert type(chosen.apply(mode.from_tensor(x))) is FakeTensor
        assert type(chosen.draw(len(x)).pairing.partner) is FakeTensor
    after, other = (method.choose(("input",), step=step) for step in (4, 5))
    assert type(after.draw(len(x)).pairing.partner) is Tensor
    assert_same([after.apply(x)], [mix(x, after.draw(len(x)).pairing)])
    assert_different([after.apply(x)], [x])
    assert_different([after.apply(x)], [other.apply(x)])


def test_a_default_device_is_not_kept() -> None:
    with torch.device("meta"):
        Draw.plain(11)
        choice().draw(11)
    assert float(Draw.plain(11).weight) == 1
    assert 0 <= float(choice().draw(11).weight) <= 1


@pytest.mark.parametrize("way", [copy.deepcopy, lambda made: pickle.loads(pickle.dumps(made))])
def test_a_copy_of_a_choice_counts_for_itself(way: Callable[[Choice], Choice]) -> None:
    made = choice()
    made.apply(images())
    other = way(made)
    assert (other.uses, other.shape) == (1, (5, 3, 4, 4))
    assert torch.equal(other.apply(images()), made.apply(images()))
    assert other.uses == made.uses == 2
    other.apply(images())
    assert (other.uses, made.uses) == (3, 2)


def test_a_torch_that_tells_less_is_asked_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    x = images()
    assert not watched(x)
    monkeypatch.delattr(torch._C, "_len_torch_dispatch_stack")
    assert watched(x)
