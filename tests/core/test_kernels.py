"""Fast and readable give the same bits, in every kernel, dtype and memory format, for any number of threads."""

from __future__ import annotations

import itertools
import multiprocessing
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import nfm
from comparing import assert_same
from nfm.core import blocks, compiled, kept, kernel, operator
from nfm.core.blocks import blocks_of, in_threads
from nfm.core.draw import Choice
from nfm.core.kernel import KERNELS, kernel_in_use, use_kernel
from nfm.core.laws import LAWS, Law
from nfm.core.mixing import Pairing, mix
from nfm.core.noise_plan import NoisePlan
from nfm.errors import EnvironmentProblem, UsageError
from nfm.randomness import fold

SHAPES = [
    (7,),
    (9, 4000),
    (128, 3, 8, 8),
    (130, 2, 17, 19),
    (2, 3, 190, 190),
    (1, 2, 190, 190),
    (4, 2, 3, 5, 6),
]
NOISES = [
    nfm.Noise(),
    nfm.Noise(0.4, 0.2),
    nfm.Noise.authors(1.0, 0.5),
    nfm.Noise(0.4, 0.2, "rademacher", "uniform", sparsity=0.3),
    nfm.Noise(0.4, 0.2, granularity="channel", sparsity=0.3),
    nfm.Noise(0.4, 0.1, granularity="sample"),
    nfm.Noise(0.4, relative=True),
]
LAYOUTS = ["contiguous", "channels last", "transposed", "sliced"]


BY_BLOCKS = "torch by blocks"  # small features too


@pytest.fixture(params=[*KERNELS, BY_BLOCKS])
def used(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    if request.param == "c" and compiled.problem():
        pytest.skip(f"no compiled kernel here: {compiled.problem()}")
    if request.param == BY_BLOCKS:
        monkeypatch.setattr(blocks, "SMALL", 0)
    blocks_of.cache_clear()
    with use_kernel("torch" if request.param == BY_BLOCKS else request.param) as name:
        yield name
    blocks_of.cache_clear()


@pytest.fixture(autouse=True)
def threads_for_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use threads for small features too."""
    monkeypatch.setattr(blocks, "BLOCKS_A_THREAD", 1)
    for least in ("NOISY_A_THREAD", "MIXED_A_THREAD"):
        monkeypatch.setattr(compiled, least, 1)
    monkeypatch.setattr(compiled, "TO_MAKE_A_THREAD", 1)


@contextmanager
def threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def choice(noise: nfm.Noise, *, per_sample: bool = False, key: int = 3, alpha: float = 1.0) -> Choice:
    return Choice(
        "input", key=key, step=0, alpha=alpha, beta=alpha, per_sample=per_sample, dominant=False, noise=noise
    )


def feature(shape: tuple[int, ...], layout: str, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    def values(*sizes: int) -> Tensor:
        return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(
            dtype
        )

    if layout == "channels last" and len(shape) == 4:
        return values(*shape).contiguous(memory_format=torch.channels_last)
    if layout == "transposed" and len(shape) > 2:
        return values(*shape[:-2], shape[-1], shape[-2]).transpose(-1, -2)
    if layout == "sliced" and len(shape) > 1:
        return values(*shape[:-1], 2 * shape[-1])[..., ::2]
    return values(*shape)


def by_equations(made: Choice, x: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    """Return the output and the gradient as the readable version computes them."""
    noise = made.noise
    pairing = made.draw(len(x)).pairing
    plan = operator.plan_of(
        made.arguments.numbers, fold(made.arguments.keys.noise, 0), add_law=noise.add_law, mult_law=noise.mult_law,
        granularity=noise.granularity, sparsity=noise.sparsity,
    )  # fmt: skip
    plan = replace(plan, scale=operator.deviation(x)) if noise.relative else plan
    return operator.mix_noise(x, pairing, plan), operator.mix_noise_transposed(g, pairing, plan)


def by_operator(made: Choice, x: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    x = x.detach().requires_grad_()
    out = made.apply(x)
    return out.detach(), torch.autograd.grad(out, x, g)[0]


@pytest.mark.parametrize("noise", NOISES, ids=repr)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_fast_equals_readable_to_the_bit(used: str, shape: tuple[int, ...], noise: nfm.Noise) -> None:
    for layout, (per_sample, alpha) in itertools.product(LAYOUTS, ((False, 1.0), (True, 1.0), (False, 0.0))):
        x, g = feature(shape, layout), feature(shape, layout, seed=1)
        made = choice(noise, per_sample=per_sample, alpha=alpha)
        with threads(2):
            fast = by_operator(made, x, g)
        for ours, expected in zip(fast, by_equations(made, x, g), strict=True):
            assert torch.equal(ours, expected), (layout, per_sample, alpha)
            assert ours.stride() == torch.empty_like(x).stride()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("noise", NOISES, ids=repr)
def test_other_dtypes_equal_the_readable_version_too(used: str, dtype: torch.dtype, noise: nfm.Noise) -> None:
    for shape, layout in itertools.product([(130, 2, 17, 19), (3, 7, 30, 30)], LAYOUTS):
        x, g = feature(shape, layout, dtype), feature(shape, layout, dtype, seed=1)
        made = choice(noise, per_sample=True)
        for ours, expected in zip(by_operator(made, x, g), by_equations(made, x, g), strict=True):
            assert torch.equal(ours, expected)


def test_one_number_that_stands_for_a_whole_gradient_is_read_right(used: str) -> None:
    """As behind a sum or a mean."""
    x, made = feature((9, 3, 8, 8), "contiguous"), choice(nfm.Noise(0.4, 0.2))
    one, full = torch.full((), 0.3).expand(x.shape), torch.full(x.shape, 0.3)
    found, expected = by_operator(made, x, one)[1], by_equations(made, x, full)[1]
    assert torch.equal(found, expected)
    assert found.is_contiguous()
    assert not torch.equal(by_operator(made, x, 2 * one)[1], expected)


@pytest.mark.parametrize("broken", ["key", "partner", "level"])
def test_the_comparison_can_fail(used: str, broken: str) -> None:
    x, g = feature((9, 400), "contiguous"), feature((9, 400), "contiguous", seed=1)
    ours = by_operator(choice(nfm.Noise(0.4, 0.2)), x, g)
    wrong = choice(
        nfm.Noise(0.4, 0.2001) if broken == "level" else nfm.Noise(0.4, 0.2), key=4 if broken == "key" else 3
    )
    theirs = by_equations(
        wrong, x.roll(1, 0) if broken == "partner" else x, g.roll(1, 0) if broken == "partner" else g
    )
    assert not any(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("noise", NOISES, ids=repr)
def test_any_number_of_threads_gives_the_same_bits(used: str, noise: nfm.Noise) -> None:
    x, g = feature((24, 5, 40, 40), "contiguous"), feature((24, 5, 40, 40), "contiguous", seed=1)
    results = []
    for count in (1, 2, 3, 7):
        with threads(count):
            results.append(by_operator(choice(noise), x, g))
    for out, grad in results[1:]:
        assert torch.equal(out, results[0][0])
        assert torch.equal(grad, results[0][1])


def test_the_kernels_draw_streams_of_their_own_with_the_same_partners() -> None:
    if compiled.problem():
        pytest.skip(f"no compiled kernel here: {compiled.problem()}")
    x = feature((16, 50), "contiguous")
    outputs = {}
    for name, noise in itertools.product(KERNELS, (nfm.Noise(), nfm.Noise(0.4))):
        with use_kernel(name):
            outputs[name, noise.silent] = choice(noise).apply(x)
    assert torch.equal(outputs["c", True], outputs["torch", True])
    assert not torch.equal(outputs["c", False], outputs["torch", False])


def test_works_under_inference_mode_and_leaves_no_grad_alone(used: str) -> None:
    made, x = choice(nfm.Noise(0.4, 0.2)), feature((8, 3, 80, 80), "contiguous")
    with threads(2), torch.inference_mode():
        inside = made.apply(x.clone())
    assert torch.equal(inside.clone(), made.apply(x))
    assert torch.is_grad_enabled()


def telling(call: Callable[[], object]) -> Law:
    """Return the Gaussian law with a call before each block is drawn."""
    law = LAWS["gaussian"]

    def fill_block(*given: Any) -> None:
        call()
        law.fill_block(*given)

    return replace(law, fill_block=fill_block)


def drawn_in_backward(made: Choice, x: Tensor, monkeypatch: pytest.MonkeyPatch, *between: Choice) -> int:
    """Return how many blocks are drawn in the backward pass of `x`, the choices `between` being applied before it."""
    out = made.apply(x)
    for other in between:
        other.apply(x)
    calls: list[int] = []
    with monkeypatch.context() as patch:
        patch.setitem(LAWS, "gaussian", telling(lambda: calls.append(1)))
        (grad,) = torch.autograd.grad(out, x, torch.ones_like(x), retain_graph=True)
        kept_calls = len(calls)
        assert torch.equal(torch.autograd.grad(out, x, torch.ones_like(x))[0], grad)
        assert len(calls) > kept_calls  # what was kept is used once
    return kept_calls


def test_factors_of_small_features_are_kept_for_one_backward_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    x, noise = feature((8, 3, 8, 8), "contiguous").requires_grad_(), nfm.Noise(0.4, 0.2)
    with use_kernel("torch"):
        assert drawn_in_backward(choice(noise), x, monkeypatch) == 0
        assert drawn_in_backward(choice(noise), x, monkeypatch, choice(noise, key=4)) > 0
        monkeypatch.setattr(kept, "MOST", x.numel() - 1)
        assert drawn_in_backward(choice(noise), x, monkeypatch) > 0


@pytest.mark.parametrize(
    ("shape", "blocks_left"),
    [
        ((24, 16, 64, 64), 1),
        ((9, 300_000), 4),
        ((70, 17_000), 2),
        ((400, 3000), 0),
        ((1, 3, 700, 700), 0),
        ((2, 3, 600, 600), 0),
    ],
    ids=str,
)
def test_factors_of_big_features_are_kept_but_for_the_last(
    shape: tuple[int, ...], blocks_left: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last blocks of long examples are drawn again, whichever examples are mixed with which."""
    noise, many = nfm.Noise(0.4, 0.2, "gaussian", "gaussian"), len(blocks_of(shape))
    with use_kernel("torch"), threads(2):
        x = feature(shape, "contiguous").requires_grad_()
        assert drawn_in_backward(choice(noise), x, monkeypatch) == blocks_left
        assert drawn_in_backward(choice(noise), x, monkeypatch, choice(noise, key=4)) == many
        for layout, per_sample in itertools.product(("contiguous", "channels last"), (False, True)):
            x, g = feature(shape, layout), feature(shape, layout, seed=1)
            made = choice(noise, per_sample=per_sample)
            (_, grad), (_, expected) = by_operator(made, x, g), by_equations(made, x, g)
            assert torch.equal(grad, expected)
            assert not torch.equal(
                by_operator(choice(noise, per_sample=per_sample, key=4), x, g)[1], expected
            )


def gradient(made: Choice, x: Tensor) -> Tensor:
    (found,) = torch.autograd.grad(made.apply(x), x, torch.ones_like(x))
    return found


def test_what_another_thread_is_drawing_is_not_taken_for_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two trainings with one seed draw the same: here one has begun to when the other goes back."""
    x, made = feature((8, 3, 8, 8), "contiguous").requires_grad_(), choice(nfm.Noise(0.4, 0.2))
    begun, done = threading.Event(), threading.Event()
    other = threading.Thread(target=lambda: made.apply(x))

    def wait() -> None:
        if threading.current_thread() is other:
            begun.set()
            assert done.wait(60)

    with use_kernel("torch"), threads(1):
        expected = gradient(made, x)
        assert not torch.equal(
            gradient(choice(nfm.Noise(0.4, 0.2), key=4), x), expected
        )  # and in idle memory now
        out = made.apply(x)
        monkeypatch.setitem(LAWS, "gaussian", telling(wait))
        other.start()
        assert begun.wait(60)
        (found,) = torch.autograd.grad(out, x, torch.ones_like(x))
        done.set()
        other.join(60)
    assert torch.equal(found, expected)


def test_kept_factors_are_of_one_dtype_whatever_the_default_is() -> None:
    x, made = feature((8, 3, 8, 8), "contiguous").requires_grad_(), choice(nfm.Noise(0.4, 0.2))
    with use_kernel("torch"):
        expected = gradient(made, x)
        torch.set_default_dtype(torch.float64)
        try:
            kept._KEPT.idle.clear()
            assert torch.equal(gradient(made, x), expected)
        finally:
            torch.set_default_dtype(torch.float32)


def test_factors_kept_by_one_kernel_are_not_those_of_the_other() -> None:
    if compiled.problem():
        pytest.skip(f"no compiled kernel here: {compiled.problem()}")
    x, made = feature((8, 3, 8, 8), "contiguous").double().requires_grad_(), choice(nfm.Noise(0.4, 0.2))
    with use_kernel("c"):
        expected = gradient(made, x)
    with use_kernel("torch"):
        assert not torch.equal(gradient(made, x), expected)
        made.apply(x)
    with use_kernel("c"):
        assert torch.equal(gradient(made, x), expected)


def test_weights_that_do_not_lie_in_a_row_are_read_right() -> None:
    if compiled.problem():
        pytest.skip(f"no compiled kernel here: {compiled.problem()}")
    x, weights = feature((8, 50), "contiguous"), torch.linspace(0, 1, 16)
    plan = NoisePlan.of(
        3, (0.0, 0.0), add_law="gaussian", mult_law="gaussian", granularity="element", sparsity=0.0
    )
    pairing = Pairing(torch.arange(8).flip(0), weights[::2])
    assert torch.equal(compiled.mix_noise(x, pairing, plan), mix(x, pairing))
    assert not torch.equal(
        compiled.mix_noise(x, Pairing(pairing.partner, weights[:8]), plan), mix(x, pairing)
    )


def test_empty_features_pass(used: str) -> None:
    for shape in ((0, 3), (4, 0)):
        assert choice(nfm.Noise(0.4, 0.2)).apply(torch.zeros(shape)).shape == shape


def _child(queue: multiprocessing.Queue, x: Tensor, name: str) -> None:
    torch.set_num_threads(2 if name == "c" else 1)  # torch's own threads do not survive a fork
    with use_kernel(name):
        drawn = choice(nfm.Noise(0.4, 0.2)).apply(x)
    torch.set_num_threads(1)
    queue.put(drawn.double().sum().item())


def test_a_forked_process_draws_the_same(used: str) -> None:
    """As in a data loader's workers, after threads were used here."""
    x = feature((8, 3, 80, 80), "contiguous")
    with threads(2):
        here = choice(nfm.Noise(0.4, 0.2)).apply(x).double().sum().item()
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_child, args=(queue, x, used))
    child.start()
    there = queue.get(timeout=60)
    child.join(60)
    assert child.exitcode == 0
    assert there == pytest.approx(here, rel=1e-12)


@pytest.mark.parametrize("layout", ["contiguous", "channels last"])
def test_threads_of_its_own_give_the_bits_of_openmps(layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if compiled.problem():
        pytest.skip(f"no compiled kernel here: {compiled.problem()}")
    if compiled._team() is None:
        pytest.skip("this torch has no OpenMP")
    made, x = choice(nfm.Noise(0.4, 0.2)), feature((8, 3, 80, 80), layout)
    with threads(2), use_kernel("c"):
        by_team = by_operator(made, x, x)
        monkeypatch.setattr(compiled, "_FORKED", [True])
        by_helpers = by_operator(made, x, x)
        other = by_operator(choice(nfm.Noise(0.4, 0.2), key=5), x, x)
    assert_same(by_helpers, by_team)
    assert not torch.equal(other[0], by_team[0])


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are listed on Linux alone")
def test_no_feature_ends_threads_that_torch_keeps() -> None:
    """A smaller team than the last makes OpenMP end the others, and torch's next operation makes them again."""
    if compiled.problem():
        pytest.skip(f"no compiled kernel here: {compiled.problem()}")
    big = torch.zeros(2**20)
    with threads(4), use_kernel("c"):
        for shape in ((1, 1), (3, 1), (4, 2000)):  # worth one thread, three and all
            big.add_(1)
            before = {path.name for path in Path("/proc/self/task").iterdir()}
            choice(nfm.Noise(0.4, 0.2)).apply(feature(shape, "contiguous"))
            big.add_(1)
            assert {path.name for path in Path("/proc/self/task").iterdir()} == before


def test_an_error_in_a_thread_reaches_the_caller() -> None:
    def work(number: int, block: object) -> None:
        if number == 5:
            raise ValueError("block 5")

    with threads(2), pytest.raises(ValueError, match="block 5"):
        in_threads(work, range(10))


@pytest.mark.parametrize(
    "shape",
    [(1,), (7,), (3, 5), (2, 3, 190, 190), (1, 70000), (5, 0), (0, 3), (128, 65, 256), (70000, 20)],
    ids=str,
)
def test_blocks_cover_a_shape_in_order(shape: tuple[int, ...]) -> None:
    seen = torch.zeros(shape)
    end = 0
    for block in blocks_of(shape):
        part = seen[block.at]
        assert tuple(part.shape) == block.shape
        assert part.is_contiguous()
        assert block.first == part.storage_offset() == end
        assert part.numel() <= (blocks.SMALL if seen.numel() <= blocks.SMALL else blocks.BIG_BLOCK)
        part += 1
        end += part.numel()
    assert end == seen.numel()
    assert (seen == 1).all()


def test_the_kernel_is_chosen_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(kernel.VARIABLE, "torch")
    assert kernel_in_use() == "torch"
    monkeypatch.setenv(kernel.VARIABLE, "tosch")
    with pytest.raises(
        UsageError, match=r"NFM_KERNEL: expected one of auto, c, torch, got 'tosch' \(did you mean 'torch'"
    ):
        kernel_in_use()
    monkeypatch.delenv(kernel.VARIABLE)
    monkeypatch.setattr(compiled, "problem", lambda: "it was not built")
    assert kernel_in_use() == "torch"
    with pytest.raises(EnvironmentProblem, match="cannot be used: it was not built"), use_kernel("c"):
        pass
    assert kernel_in_use() == "torch"


def test_a_stale_or_broken_library_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    problem = compiled.problem.__wrapped__
    if not compiled.problem():
        other = tmp_path / "kernel.c"
        other.write_text("/* another source */")
        monkeypatch.setattr(compiled, "SOURCE", other)
        assert "built from another kernel.c" in problem()
    broken = tmp_path / "_kernel.so"
    monkeypatch.setattr(compiled, "LIBRARY", broken)
    assert "not built" in problem()
    broken.write_bytes(b"no library")
    assert "does not load" in problem()
