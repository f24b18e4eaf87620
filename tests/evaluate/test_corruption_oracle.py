"""Every family against the same one written slowly, image by image, on the same random numbers."""

import hashlib

import numpy as np
import pytest
import torch
from corruption_images import Replayed, synthetic, to_pictures
from PIL import Image
from slow_corruptions import SLOW, Array, FreshDraws, canny

from nfm.evaluate.corruptions import CONSTANTS, CORRUPTIONS, SEVERITIES, Corruption, corrupt
from nfm.evaluate.corruptions.edges import distance_to, find_edges
from nfm.evaluate.corruptions.frost import draw_windows
from nfm.evaluate.corruptions.glass import find_sources

BY_LAW = ("gaussian_noise", "shot_noise", "impulse_noise", "speckle_noise")  # test_corruption_laws
# Where our float32 and the oracle's float64 truncate a sum near a whole number to either side.
DOUBT = {"frost": 0.03}
# Of the slow functions here, checked against scikit-image 0.26, OpenCV 5 and Pillow 13: five severities of
# synthetic(4, 32, 32), blake2b of 8 bytes. JPEG: a simulation of IJG's library with its own factors.
DIGESTS = {
    "defocus_blur": "97109d023a349217",
    "zoom_blur": "5f7afcecf460985c",
    "brightness": "f9762a88d0a04ae5",
    "contrast": "cb5b3c80603e19d1",
    "pixelate": "8e6b3a8337ca43ff",
    "jpeg_compression": "bc09fda07ba423ae",
    "gaussian_blur": "c0fff637e7ca6cbd",
    "saturate": "822eb7895e66762b",
}


def slowly(family: str, pictures: Array, severity: int, constants: str) -> Array:
    stream = Corruption(family).stream(torch.arange(len(pictures)), severity, seed=0)
    side = 2 << (max(pictures.shape[1:3]) - 1).bit_length()
    options = {"windows": draw_windows(side).numpy()} if family == "frost" else {}
    numbers = CONSTANTS[constants][family][severity - 1]
    return np.stack(
        [
            SLOW[family](picture.copy(), Replayed(stream, number), *numbers, **options)
            for number, picture in enumerate(pictures)
        ]
    )


def differing(ours: Array, theirs: Array) -> tuple[int, float]:
    """Return the largest difference in levels, and the share of values that differ."""
    apart = np.abs(ours.astype(int) - theirs)
    return int(apart.max()), float((apart > 0).mean())


def assert_same_picture(family: str, ours: Array, theirs: Array) -> None:
    largest, share = differing(ours, theirs)
    assert largest <= 1
    assert share <= DOUBT.get(family, 0.005)


@pytest.mark.parametrize("family", DIGESTS)
def test_families_without_chance_have_the_digest_of_the_reference(family: str) -> None:
    images, ids = synthetic(4, 32, 32), torch.arange(4)
    digest, shifted = hashlib.blake2b(digest_size=8), hashlib.blake2b(digest_size=8)
    for severity in SEVERITIES:
        digest.update(to_pictures(corrupt(images, ids, family, severity)).tobytes())
        shifted.update(to_pictures(corrupt(images.roll(1, 3), ids, family, severity)).tobytes())
    assert digest.hexdigest() == DIGESTS[family]
    assert shifted.hexdigest() != DIGESTS[family]


@pytest.mark.parametrize("family", [name for name in DIGESTS if name != "jpeg_compression"])
@pytest.mark.parametrize("constants", ["tiny", "imagenet"])
def test_families_without_chance_are_equal_at_other_sizes(family: str, constants: str) -> None:
    images = synthetic(2, 44, 51)
    for severity in SEVERITIES:
        ours = to_pictures(corrupt(images, torch.arange(2), family, severity, constants=constants))
        theirs = slowly(family, to_pictures(images), severity, constants)
        assert differing(ours, theirs) == (0, 0.0) or family == "defocus_blur"
        assert_same_picture(family, ours, theirs)  # of defocus, whose slow sums are not exact


@pytest.mark.parametrize("family", [name for name in CORRUPTIONS if name not in (*BY_LAW, *DIGESTS)])
def test_random_families_agree_on_the_same_draws(family: str) -> None:
    images = synthetic(2, 32, 32)
    for severity in SEVERITIES:
        ours = to_pictures(corrupt(images, torch.arange(2), family, severity))
        assert_same_picture(family, ours, slowly(family, to_pictures(images), severity, "cifar"))
    other_draws = to_pictures(corrupt(images, torch.arange(2), family, 5, seed=1))
    assert differing(other_draws, ours)[0] > 1


@pytest.mark.parametrize("family", [name for name in CORRUPTIONS if name not in (*BY_LAW, *DIGESTS)])
def test_random_families_agree_at_other_sizes(family: str) -> None:
    images = synthetic(1, 41, 38)
    for severity in (2, 5):
        ours = to_pictures(corrupt(images, torch.arange(1), family, severity, constants="imagenet"))
        assert_same_picture(family, ours, slowly(family, to_pictures(images), severity, "imagenet"))


@pytest.mark.parametrize("size", [(32, 32), (23, 37)])
def test_jpeg_of_grey_is_what_pillow_gives(size: tuple[int, int]) -> None:
    images = synthetic(3, *size)[:, :1]
    for severity in SEVERITIES:
        ours = corrupt(images, torch.arange(3), "jpeg_compression", severity)[:, 0].numpy()
        quality = CONSTANTS["cifar"]["jpeg_compression"][severity - 1]
        for mine, grey in zip(ours, images[:, 0].numpy(), strict=True):
            assert np.array_equal(mine, pillow_grey(grey, int(quality[0])))
            assert not np.array_equal(mine, pillow_grey(grey, int(quality[0]) - 1))


def pillow_grey(image: Array, quality: int) -> Array:
    restored = SLOW["jpeg_compression"](image, FreshDraws(0), quality)
    assert Image.fromarray(image).mode == "L"
    return restored


def test_jpeg_in_colour_is_near_what_pillow_gives() -> None:
    row, column = np.meshgrid(np.arange(32), np.arange(32), indexing="ij")
    smooth = [127 + 60 * np.sin((row + phase * column) / 9 + phase) for phase in range(3)]
    pictures = np.stack(smooth, axis=-1).astype(np.uint8)[None]
    images = torch.from_numpy(pictures).permute(0, 3, 1, 2).contiguous()
    ours = to_pictures(corrupt(images, torch.arange(1), "jpeg_compression", 1)).astype(int)
    theirs = slowly("jpeg_compression", pictures, 1, "cifar")
    stronger = slowly("jpeg_compression", pictures, 5, "cifar")
    assert np.abs(ours - theirs).mean() < 2  # the libraries thin out chroma differently
    assert np.abs(ours - stronger).mean() > 3


def test_edges_are_cannys() -> None:
    levels = synthetic(6, 40, 33)[:, 1]
    found = find_edges(levels, 50, 150)
    for edges, image in zip(found.numpy(), levels.numpy(), strict=True):
        assert np.array_equal(edges, canny(image, 50, 150))
        assert not np.array_equal(edges, canny(image, 50, 400))
    assert 0 < found.float().mean() < 0.5


def test_distances_are_euclidean_and_cut() -> None:
    edges = torch.zeros(1, 30, 30, dtype=torch.bool)
    edges[0, 4, 7] = edges[0, 25, 3] = True
    rows, columns = torch.meshgrid(torch.arange(30.0), torch.arange(30.0), indexing="ij")
    first, second = torch.hypot(rows - 4, columns - 7), torch.hypot(rows - 25, columns - 3)
    assert torch.allclose(distance_to(edges, 12)[0], torch.minimum(first, second).clamp(max=12))


def test_chains_of_exchanged_pixels_are_followed_to_their_end() -> None:
    """Each pixel looks one to the right, where the turn has been already: all end at the last column's."""
    steps = torch.zeros(1, 2, 12, 12, dtype=torch.int32)
    steps[:, 1] = 1
    sources = find_sources(steps, 2).view(12, 12)
    assert (sources[3:11, 3:11] == torch.arange(12)[3:11, None] * 12 + 11).all()
    assert (sources[0] == torch.arange(12)).all()
