"""The compiled paste moves the bytes that indexing moves, in every layout, dtype and number of threads."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import nfm
from nfm.core import compiled
from nfm.core.box import Box
from nfm.core.kernel import use_kernel

pytestmark = pytest.mark.skipif(bool(compiled.problem()), reason=f"no compiled kernel: {compiled.problem()}")

LAYOUTS = {"contiguous": torch.contiguous_format, "channels last": torch.channels_last}
BOXES = [Box(2, 7, 1, 6), Box(0, 9, 0, 8), Box(4, 4, 2, 5), Box(0, 3, 5, 5), Box(8, 9, 7, 8)]


def images(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)


def by_indexing(x: Tensor, source: Tensor, box: Box) -> Tensor:
    out = x.clone()
    out[:, :, box.top : box.bottom, box.left : box.right] = x[source][
        :, :, box.top : box.bottom, box.left : box.right
    ]
    return out


@pytest.mark.usefixtures("kernel_threads")
@pytest.mark.parametrize("box", BOXES, ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_pasted_as_by_indexing(dtype: torch.dtype, layout: str, box: Box) -> None:
    x = images(6, 3, 9, 8, dtype=dtype).contiguous(memory_format=LAYOUTS[layout])
    source = torch.tensor([1, 2, 0, 4, 5, 3])
    pasted = compiled.paste_box(x, source, box)
    assert torch.equal(pasted, by_indexing(x, source, box))
    assert pasted.stride() == x.stride()
    if box.area:
        assert not torch.equal(pasted, by_indexing(x, source.flip(0), box))  # the control


@given(
    n=st.integers(1, 5), channels=st.integers(1, 4), height=st.integers(1, 6), width=st.integers(1, 6),
    data=st.data(),
)  # fmt: skip
def test_pasted_in_any_shape(n: int, channels: int, height: int, width: int, data: st.DataObject) -> None:
    top, left = data.draw(st.integers(0, height)), data.draw(st.integers(0, width))
    box = Box(top, data.draw(st.integers(top, height)), left, data.draw(st.integers(left, width)))
    source = torch.tensor(data.draw(st.permutations(range(n))))
    layout = data.draw(st.sampled_from(list(LAYOUTS.values())))
    x = images(n, channels, height, width).contiguous(memory_format=layout)
    assert torch.equal(compiled.paste_box(x, source, box), by_indexing(x, source, box))


@pytest.mark.parametrize("kernel", ["c", "torch"])
def test_both_kernels_paste_alike_and_so_do_odd_strides(kernel: str) -> None:
    method = nfm.scheme("cutmix", seed=3)
    x = images(6, 3, 9, 8)
    odd = images(6, 3, 9, 16)[..., ::2].copy_(x)
    with use_kernel(kernel):
        pasted, of_odd = (method.choose(("input",), step=0).apply(each) for each in (x, odd))
        other = method.choose(("input",), step=1).apply(x)
    with use_kernel("torch"):
        expected = method.choose(("input",), step=0).apply(x)
    assert torch.equal(pasted, expected)
    assert torch.equal(of_odd, expected)
    assert not torch.equal(other, expected)


@pytest.mark.parametrize("weights", ["batch", "sample"])
@pytest.mark.parametrize("shape", [(0, 3, 4, 4), (2, 3, 0, 4), (2, 0, 4, 4)], ids=str)
def test_empty_images_pass(shape: tuple[int, ...], weights: str) -> None:
    method = nfm.scheme("cutmix", weights=weights)
    assert method.choose(("input",)).apply(torch.zeros(shape)).shape == shape
