"""The compiled windows are those cut image by image, over any border, in any number of threads."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from nfm.core import compiled
from nfm.data import CropFlip
from nfm.data.windows import cut_readably, cut_windows
from nfm.errors import ShapeError

pytestmark = pytest.mark.skipif(bool(compiled.problem()), reason=f"no compiled kernel: {compiled.problem()}")

COUNT = 9


def pixels(*shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(
        1, 256, shape, generator=generator, dtype=torch.uint8
    )  # none is what lies over the border


@pytest.mark.usefixtures("kernel_threads")
@pytest.mark.parametrize("size", [(7, 5), (4, 3), (11, 12)], ids=["as the image", "smaller", "bigger"])
@pytest.mark.parametrize("channels", [1, 3])
def test_windows_are_those_cut_image_by_image(channels: int, size: tuple[int, int]) -> None:
    images = pixels(COUNT, channels, 7, 5)
    corners = torch.tensor([[0, 0], [2, 1], [-3, -2], [3, -4], [-7, 0], [0, 5], [40, -40], [-1, 4], [6, 0]])
    for mirrored in (torch.zeros(COUNT, dtype=torch.bool), torch.arange(COUNT) % 2 == 0):
        cut = compiled.cut_windows(images, corners, size, mirrored)
        assert torch.equal(cut, cut_readably(images, corners, size, mirrored))
        assert not torch.equal(cut, cut_readably(images, corners, size, ~mirrored))
        assert not torch.equal(cut, cut_readably(images, corners.flip(1), size, mirrored))


@given(
    corner=st.tuples(st.integers(-9, 9), st.integers(-9, 9)), mirror=st.booleans(),
    size=st.tuples(st.integers(1, 9), st.integers(1, 9)),
)  # fmt: skip
def test_a_pixel_comes_from_its_place(corner: tuple[int, int], mirror: bool, size: tuple[int, int]) -> None:
    image = pixels(1, 1, 6, 4)
    (window,) = cut_windows(image, torch.tensor([corner]), size, torch.tensor([mirror]))[0]
    for row in range(size[0]):
        for column in range(size[1]):
            place = corner[0] + row, corner[1] + (size[1] - 1 - column if mirror else column)
            inside = 0 <= place[0] < 6 and 0 <= place[1] < 4
            assert window[row, column] == (image[0, 0][place] if inside else 0)


def test_what_does_not_lie_in_a_row_is_put_into_order() -> None:
    images, corners = pixels(COUNT, 3, 6, 4), torch.randint(-2, 3, (2, COUNT)).T
    mirrored = (torch.arange(2 * COUNT) % 3 == 0)[::2]
    turned = images.transpose(2, 3).contiguous().transpose(2, 3)
    cut = cut_windows(turned, corners, (6, 4), mirrored)
    assert torch.equal(cut, cut_readably(images, corners, (6, 4), mirrored))
    assert not torch.equal(cut, cut_readably(images, corners + 1, (6, 4), mirrored))


@pytest.mark.parametrize("count", [COUNT - 1, COUNT + 1])
def test_each_image_needs_a_place_of_its_own(count: int) -> None:
    images, corners, mirrored = pixels(COUNT, 3, 6, 4), torch.zeros(COUNT, 2), torch.zeros(COUNT)
    with pytest.raises(ShapeError, match=f"as many examples as images, {COUNT}, got {count} and {COUNT}"):
        cut_windows(images, torch.zeros(count, 2), (6, 4), mirrored)
    with pytest.raises(ShapeError, match=f"got {COUNT} and {count}"):
        cut_windows(images, corners, (6, 4), torch.zeros(count))
    with pytest.raises(ShapeError, match="expected as many examples"):
        CropFlip()(images, torch.arange(count), key=1)
    assert torch.equal(cut_windows(images, corners, (6, 4), mirrored), images)


def test_images_that_are_not_in_this_memory_are_not_read() -> None:
    with pytest.raises((RuntimeError, TypeError)):
        CropFlip()(torch.empty(8, 3, 6, 6, dtype=torch.uint8, device="meta"), torch.arange(8), key=1)
