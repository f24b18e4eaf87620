"""Images decoded on demand: the evaluation view, random views, and what is refused."""

import io
import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from nfm.data import Batches, CropFlip, EncodedImages, RandomResizedCrop, bad_images
from nfm.data import encoded as encoded_module
from nfm.data.encoded import FileBlobs, PackedBlobs, open_image
from nfm.errors import DataError


def picture(width: int, height: int, seed: int = 0) -> Image.Image:
    coarse = np.random.default_rng(seed).integers(0, 256, (6, 6, 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)


def saved(image: Image.Image, kind: str = "PNG") -> bytes:
    stream = io.BytesIO()
    image.save(stream, kind)
    return stream.getvalue()


def packed(pictures: list[bytes], *, size: int = 8, resize: int | None = 10) -> EncodedImages:
    offset = np.r_[0, np.cumsum([len(each) for each in pictures])]
    blobs = PackedBlobs(np.frombuffer(b"".join(pictures), np.uint8), offset, "pack")
    count = torch.arange(len(pictures))
    return EncodedImages(blobs, count, count % 2, count + 100, size, resize)


SIZES = [(20, 30), (30, 20), (25, 25), (9, 40), (11, 8), (31, 17), (50, 50), (8, 8)]
PICTURES = [picture(*size, seed) for seed, size in enumerate(SIZES)]


@pytest.fixture
def mixed() -> EncodedImages:
    return packed([saved(each) for each in PICTURES])


def evaluation_oracle(image: Image.Image, resize: int, size: int) -> np.ndarray:
    """Shorter side to `resize`, middle cut out: written as the published recipe."""
    width, height = image.size
    if width <= height:
        image = image.resize((resize, int(resize * height / width)), Image.Resampling.BILINEAR)
    else:
        image = image.resize((int(resize * width / height), resize), Image.Resampling.BILINEAR)
    left, top = round((image.width - size) / 2.0), round((image.height - size) / 2.0)
    return np.asarray(image)[top : top + size, left : left + size].transpose(2, 0, 1)


def test_the_evaluation_view_is_the_recipe_and_the_same_each_time(mixed: EncodedImages) -> None:
    views = mixed.fetch(torch.arange(8))
    assert views.shape == (8, 3, 8, 8)
    assert views.dtype == torch.uint8
    for view, image in zip(views, PICTURES, strict=True):
        assert np.array_equal(view.numpy(), evaluation_oracle(image, 10, 8))
        assert not np.array_equal(view.numpy(), evaluation_oracle(image, 11, 8))
    assert torch.equal(views, mixed.fetch(torch.arange(8)))


def test_a_random_view_is_the_scaled_box_of_the_whole_image(mixed: EncodedImages) -> None:
    crop = RandomResizedCrop(6)
    views = mixed.fetch(torch.arange(8), augment=crop, key=5)
    draws = crop.draws(mixed.ids, key=5)
    for view, image, draw in zip(views, PICTURES, draws, strict=True):
        part = np.asarray(image.crop(crop.box(*image.size, draw)).resize((6, 6), Image.Resampling.BILINEAR))
        part = (part[:, ::-1] if draw[-1] < 0.5 else part).transpose(2, 0, 1).astype(int)
        assert np.abs(view.numpy() - part).max() <= 1  # one level of rounding
        assert np.abs(view.numpy() - part[:, ::-1]).max() > 1


@pytest.mark.parametrize("augment", [RandomResizedCrop(6), CropFlip(pad=1)])
def test_an_images_view_is_its_own(mixed: EncodedImages, augment: RandomResizedCrop | CropFlip) -> None:
    found = []
    for options in ({"batch_size": 3}, {"batch_size": 8, "workers": 2}, {"batch_size": 5, "shuffle": False}):
        batches = Batches(mixed, seed=2, augment=augment, **options)  # type: ignore[arg-type]
        rows = itertools.chain(*(zip(b.ids.tolist(), b.x, strict=True) for b in batches.epoch(1)))
        found.append(dict(rows))
    assert found[0].keys() == set(range(100, 108))
    for other in found[1:]:
        assert all(torch.equal(found[0][each], other[each]) for each in other)


def test_a_subset_keeps_ids_and_images(mixed: EncodedImages) -> None:
    part = mixed.subset(torch.tensor([6, 1]))
    assert part.ids.tolist() == [106, 101]
    assert torch.equal(part.fetch(torch.tensor([0])), mixed.fetch(torch.tensor([6])))
    whole = part.relabel(torch.tensor([5, 6])).decoded()
    assert whole.labels.tolist() == [5, 6]
    assert torch.equal(whole.images, mixed.fetch(torch.tensor([6, 1])))


def test_without_resize_the_size_must_be_right() -> None:
    good = packed([saved(picture(8, 8))], resize=None)
    assert np.array_equal(good.fetch(torch.tensor([0]))[0].permute(1, 2, 0), picture(8, 8))
    bad = packed([saved(picture(8, 8)), saved(picture(9, 8))], resize=None)
    with pytest.raises(DataError, match=r"pack, image 1: expected an image of 8x8, got \(9, 8\)"):
        bad.fetch(torch.tensor([0, 1]))


@pytest.mark.parametrize("mode", ["L", "LA", "RGBA", "P", "1"])
def test_other_colour_modes_become_rgb(mode: str) -> None:
    image = open_image(saved(picture(8, 8).convert(mode)), "x")
    assert image.mode == "RGB"
    assert np.array_equal(np.asarray(image), np.asarray(picture(8, 8).convert(mode).convert("RGB")))


def test_cmyk_becomes_rgb() -> None:
    assert open_image(saved(picture(8, 8).convert("CMYK"), "JPEG"), "x").mode == "RGB"


def sixteen_bit() -> bytes:
    return saved(Image.fromarray(np.arange(64, dtype=np.uint16).reshape(8, 8) * 1000))


def bomb() -> bytes:
    """A small PNG whose header promises 40,000 x 40,000 pixels."""
    content = bytearray(saved(Image.new("RGB", (8, 8))))
    content[16:24] = (40_000).to_bytes(4, "big") * 2
    import zlib

    content[29:33] = zlib.crc32(content[12:29]).to_bytes(4, "big")
    return bytes(content)


@pytest.mark.parametrize(
    "content",
    [
        lambda: saved(picture(60, 60), "JPEG")[:-300],
        lambda: saved(picture(60, 60))[:200],
        lambda: b"",
        lambda: b"<html>not found</html>",
        bomb,
        sixteen_bit,
    ],
    ids=["torn jpeg", "torn png", "empty", "html", "bomb", "16 bit"],
)
def test_a_bad_image_is_refused_by_its_name(content: Callable[[], bytes], tmp_path: Path) -> None:
    path = tmp_path / "broken.png"
    path.write_bytes(content())
    examples = EncodedImages(
        FileBlobs((str(path),)), torch.tensor([0]), torch.tensor([0]), torch.tensor([0]), 8, 10
    )
    with pytest.raises(DataError, match=r"broken\.png: "):
        examples.fetch(torch.tensor([0]))
    assert list(bad_images(examples)) == [0]


def test_a_bomb_below_pillows_own_line_is_refused_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoded_module, "MAX_PIXELS", 99)
    with pytest.raises(DataError, match="at most 99 pixels, got 10x10"):
        open_image(saved(picture(10, 10)), "x")


def test_bad_images_are_told_and_can_be_left_out(mixed: EncodedImages) -> None:
    broken = packed([saved(picture(9, 9)), b"no image", saved(picture(9, 9))])
    found = bad_images(broken)
    assert list(found) == [1]
    assert "pack, image 1: not a whole image" in found[1]
    good = broken.subset(torch.tensor([index for index in range(3) if index not in found]))
    assert good.fetch(torch.arange(2)).shape == (2, 3, 8, 8)
    assert bad_images(mixed) == {}
