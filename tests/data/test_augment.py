"""Crops and flips against per-example oracles, their ranges and laws."""

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import interpolate, pad

from nfm.core.kernel import use_kernel
from nfm.data import AutoAugment, Chain, CropFlip, Examples, RandomResizedCrop
from nfm.data.draws import uniforms
from nfm.errors import ShapeError, UsageError
from nfm.randomness import fold


def crop_flip_oracle(images: Tensor, ids: Tensor, *, key: int, width: int, mode: str) -> Tensor:
    draw = uniforms(ids, 3, key=key)
    out = []
    for image, (u, v, chance) in zip(images, draw, strict=True):
        padded = pad(image[None].float(), (width,) * 4, mode=mode)[0]
        top, left = int(u * (2 * width + 1)), int(v * (2 * width + 1))
        window = padded[:, top : top + image.shape[1], left : left + image.shape[2]]
        out.append(torch.flip(window, [2]) if chance < 0.5 else window)
    return torch.stack(out).to(images.dtype)


@pytest.mark.parametrize("kernel", ["auto", "torch"])
@pytest.mark.parametrize(("padding", "mode"), [("zero", "constant"), ("reflect", "reflect")])
def test_crop_flip_is_the_per_example_recipe(images: Examples, padding: str, mode: str, kernel: str) -> None:
    augment = CropFlip(pad=3, padding=padding)  # type: ignore[arg-type]
    with use_kernel(kernel):
        ours = augment(images.images, images.ids, key=5)
    assert torch.equal(ours, crop_flip_oracle(images.images, images.ids, key=5, width=3, mode=mode))
    assert not torch.equal(ours, crop_flip_oracle(images.images, images.ids, key=6, width=3, mode=mode))


def test_crop_flip_leaves_its_input_alone(images: Examples) -> None:
    before = images.images.clone()
    CropFlip()(images.images, images.ids, key=1)
    assert torch.equal(images.images, before)


def test_crop_flip_without_pad_or_flip_is_the_identity(images: Examples) -> None:
    assert torch.equal(CropFlip(pad=0, flip=0)(images.images, images.ids, key=1), images.images)
    flipped = CropFlip(pad=0, flip=1)(images.images, images.ids, key=1)
    assert torch.equal(flipped, images.images.flip(-1))


def test_every_offset_is_equally_likely() -> None:
    n = 25_000
    dot = torch.zeros(1, 1, 9, 9, dtype=torch.uint8)
    dot[0, 0, 4, 4] = 255
    moved = CropFlip(pad=2, flip=0)(dot.expand(n, 1, 9, 9), torch.arange(n), key=0)
    cells = moved.flatten(1).argmax(1).bincount(minlength=81).reshape(9, 9)
    assert cells.sum() == cells[2:7, 2:7].sum() == n
    # 25 cells of 1000 each: five deviations of a binomial count.
    assert (cells[2:7, 2:7] - 1000).abs().max() < 5 * np.sqrt(1000)


@pytest.mark.parametrize("options", [{"pad": -1}, {"flip": 1.5}, {"padding": "edge"}])
def test_crop_flip_refuses_other_options(options: dict[str, object]) -> None:
    with pytest.raises(UsageError, match="expected pad >= 0"):
        CropFlip(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize("augment", [CropFlip(), RandomResizedCrop(8), AutoAugment()])
def test_vectors_are_not_augmented(augment: CropFlip) -> None:
    with pytest.raises(ShapeError, match="augment=None"):
        augment(torch.zeros(4, 2), torch.arange(4), key=0)


def test_reflection_needs_room() -> None:
    with pytest.raises(ShapeError, match="reflect"):
        CropFlip(pad=8, padding="reflect")(torch.zeros(1, 1, 8, 8), torch.arange(1), key=0)


def test_a_resized_crop_is_the_scaled_box(images: Examples) -> None:
    crop = RandomResizedCrop(5, flip=0.5)
    ours = crop(images.images, images.ids, key=3)
    draws = crop.draws(images.ids, key=3)
    assert ours.shape == (60, 3, 5, 5)
    for image, result, draw in zip(images.images, ours, draws, strict=True):
        left, top, right, bottom = crop.box(8, 8, draw)
        part = image[None, :, top:bottom, left:right]
        scaled = interpolate(part, (5, 5), mode="bilinear", antialias=True)[0]
        assert torch.equal(result, scaled.flip(-1) if draw[-1] < 0.5 else scaled)


@pytest.mark.parametrize(("width", "height"), [(500, 375), (64, 64), (1000, 40)])
def test_boxes_keep_to_their_ranges(width: int, height: int) -> None:
    crop = RandomResizedCrop()
    boxes = np.array([crop.box(width, height, draw) for draw in crop.draws(torch.arange(4000), key=1)])
    left, top, right, bottom = boxes.T
    assert (left >= 0).all()
    assert (top >= 0).all()
    assert (right <= width).all()
    assert (bottom <= height).all()
    share = (right - left) * (bottom - top) / (width * height)
    ratio = (right - left) / (bottom - top)
    assert share.max() <= 1
    assert ratio.max() < 4 / 3 * 1.06  # sides are whole pixels
    assert ratio.min() > 3 / 4 * 0.94
    if width == 64:
        assert share.min() > 0.07
        assert abs(share.mean() - 0.54) < 0.08  # scale is uniform on (.08, 1); the largest fit less often


def test_a_chain_gives_each_step_its_own_draws(images: Examples) -> None:
    flip = CropFlip(pad=2)
    chained = Chain((flip, flip))(images.images, images.ids, key=3)
    once = flip(images.images, images.ids, key=fold(3, 0))
    assert torch.equal(chained, flip(once, images.ids, key=fold(3, 1)))
    assert not torch.equal(chained, flip(once, images.ids, key=fold(3, 0)))
