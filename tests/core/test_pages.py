"""Memory of big tensors is used again when, and only when, nobody has it any more."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

from nfm.core import pages
from nfm.core.draw import Choice
from nfm.core.kernel import KERNELS, use_kernel
from nfm.core.noise import Noise
from nfm.core.pages import fresh_like

BIG = torch.empty(pages.WORTH_IT // 4)


@pytest.fixture(autouse=True)
def _nothing_idle() -> Iterator[None]:
    gc.collect()
    pages._IDLE.clear()
    yield
    pages._IDLE.clear()


def test_memory_of_the_dead_is_used_again() -> None:
    first = fresh_like(BIG)
    place = first.data_ptr()
    del first
    assert fresh_like(BIG).data_ptr() == place


@pytest.mark.parametrize(
    "hold",
    [lambda out: out, lambda out: out[5:], lambda out: out.numpy()[:3], lambda out: out.untyped_storage()],
    ids=["tensor", "view", "array", "storage"],
)
def test_memory_that_somebody_has_is_not(hold: Callable[[Tensor], object]) -> None:
    first = fresh_like(BIG)
    place, held = first.data_ptr(), hold(first)
    del first
    assert fresh_like(BIG).data_ptr() != place
    del held
    assert place in {memory.data_ptr() for memory in pages._IDLE}


def test_memory_that_a_graph_saved_is_not() -> None:
    x = torch.ones_like(BIG, requires_grad=True)
    saved = fresh_like(BIG).copy_(torch.full_like(BIG, 3.0))
    y = (x * saved).sum()
    del saved
    fresh_like(BIG).fill_(7.0)
    y.backward()
    assert bool((x.grad == 3).all())


def test_another_size_gets_memory_of_its_own_and_two_are_kept_at_most() -> None:
    sizes = [BIG.numel() + more for more in range(4)]
    several = [fresh_like(torch.empty(size)) for size in sizes]
    assert len({out.data_ptr() for out in several}) == 4
    while several:
        several.pop(0)
    assert [len(memory) for memory in pages._IDLE] == [4 * sizes[2], 4 * sizes[3]]


@pytest.mark.parametrize(
    "elements", [pages.WORTH_IT // 4 - 1, pages.USED_AGAIN // 4 + 1], ids=["small", "huge"]
)
def test_what_is_small_or_huge_is_given_back(elements: int) -> None:
    fresh_like(torch.empty(elements))
    assert not pages._IDLE


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32])
@pytest.mark.parametrize("format", [torch.contiguous_format, torch.channels_last])
def test_dtype_shape_and_strides_are_those_of_empty_like(
    dtype: torch.dtype, format: torch.memory_format
) -> None:
    x = torch.empty(128, 16, 32, 64, dtype=dtype).contiguous(memory_format=format)
    for like in (x, x[:, ::2], x.transpose(0, 1), x[:, :1].expand(-1, 16, -1, -1)):
        ours, torchs = fresh_like(like), torch.empty_like(like)
        assert (ours.dtype, ours.shape, ours.stride()) == (torchs.dtype, torchs.shape, torchs.stride())


def test_a_mode_leaves_no_mark_on_the_memory() -> None:
    with torch.inference_mode():
        made = fresh_like(BIG)
        assert made.is_inference()
    place = made.data_ptr()
    del made
    later = fresh_like(BIG)
    assert later.data_ptr() == place
    assert not later.is_inference()
    later.fill_(1.0)
    (later * torch.ones(1, requires_grad=True)).sum().backward()


def test_threads_never_share_memory() -> None:
    wrong = []

    def work(number: int) -> None:
        for _ in range(20):
            out = fresh_like(BIG).fill_(number)
            other = fresh_like(BIG).fill_(-1)
            if not bool((out == number).all()) or out.data_ptr() == other.data_ptr():
                wrong.append(number)
            del out, other

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("kernel", KERNELS)
def test_steps_in_used_memory_are_steps_in_fresh_memory(kernel: str) -> None:
    x = torch.randn(128, 16, 32, 32, generator=torch.Generator().manual_seed(1))

    def step(number: int) -> tuple[Tensor, Tensor]:
        made = Choice(
            "input", key=number, step=0, alpha=1.0, beta=1.0, per_sample=False, dominant=False,
            noise=Noise.paper(0.4, 0.2),
        )  # fmt: skip
        leaf = x.clone().requires_grad_()
        out = made.apply(leaf)
        return out.detach().clone(), torch.autograd.grad(out, leaf, x)[0].clone()

    with use_kernel(kernel):
        used = [step(number) for number in (0, 1, 0)]
        assert pages._IDLE
        fresh = []
        for number in (0, 1, 0):
            pages._IDLE.clear()
            fresh.append(step(number))
    for ours, theirs in zip(used, fresh, strict=True):
        assert all(map(torch.equal, ours, theirs))
    assert not torch.equal(used[0][0], used[1][0])
