"""The policy's operations against Pillow, and the policy's laws."""

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageOps
from torch import Tensor

from nfm.data import AutoAugment
from nfm.data import image_ops as ops
from nfm.data.autoaugment import KINDS, pairs

GREY = (ops.FILL,) * 3


def photographs(n: int = 12) -> Tensor:
    """Smooth random images, plus a flat and a two-level one: the corner cases of histograms."""
    generator = torch.Generator().manual_seed(0)
    coarse = torch.rand(n, 3, 6, 6, generator=generator)
    smooth = torch.nn.functional.interpolate(coarse, (32, 32), mode="bicubic").clamp(0, 1)
    images = (smooth * 200 + 20).to(torch.uint8)
    images[0] = 77
    images[1] = torch.where(images[1] > 100, 255, 3).to(torch.uint8)
    return images


def pillow(image: Tensor) -> Image.Image:
    return Image.fromarray(image.permute(1, 2, 0).numpy())


def back(image: Image.Image) -> Tensor:
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)


def moved(image: Image.Image, *matrix: float) -> Image.Image:
    return image.transform(image.size, Image.Transform.AFFINE, matrix, fillcolor=GREY)


ORACLES = {
    "shear_x": (0.23, lambda x, s: moved(x, 1, s, 0, 0, 1, 0)),
    "shear_y": (-0.23, lambda x, s: moved(x, 1, 0, 0, s, 1, 0)),
    "translate_x": (-7.9, lambda x, s: moved(x, 1, 0, int(s), 0, 1, 0)),
    "translate_y": (7.9, lambda x, s: moved(x, 1, 0, 0, 0, 1, int(s))),
    "rotate": (21.0, lambda x, s: x.rotate(s, fillcolor=GREY)),
    "invert": (0.0, lambda x, s: ImageOps.invert(x)),
    "solarize": (120.0, lambda x, s: ImageOps.solarize(x, s)),
    "posterize": (5.0, lambda x, s: ImageOps.posterize(x, int(s))),
    "auto_contrast": (0.0, lambda x, s: ImageOps.autocontrast(x)),
    "equalize": (0.0, lambda x, s: ImageOps.equalize(x)),
    "brightness": (1.4, lambda x, s: ImageEnhance.Brightness(x).enhance(s)),
    "color": (0.3, lambda x, s: ImageEnhance.Color(x).enhance(s)),
    "contrast": (1.7, lambda x, s: ImageEnhance.Contrast(x).enhance(s)),
    "sharpness": (0.2, lambda x, s: ImageEnhance.Sharpness(x).enhance(s)),
}


@pytest.mark.parametrize("name", sorted(KINDS))
def test_an_operation_is_pillows(name: str) -> None:
    strength, oracle = ORACLES[name]
    images = photographs()
    ours = getattr(ops, name)(images, torch.full((len(images),), strength, dtype=torch.float64))
    theirs = torch.stack([back(oracle(pillow(image), strength)) for image in images])
    assert ours.dtype == torch.uint8
    # Pillow moves pixels by 16-bit fixed point: a pixel exactly between two may go the other way.
    most = 0.01 if name in ("shear_x", "shear_y", "rotate") else 0.0
    assert (ours != theirs).float().mean().item() <= most
    other = getattr(ops, name)(images.flip(0), torch.full((len(images),), strength, dtype=torch.float64))
    assert (other != theirs).float().mean().item() > 0.1


def test_each_image_has_its_own_strength() -> None:
    images = photographs(4)
    strength = torch.tensor([0.5, 1.0, 1.5, 1.9], dtype=torch.float64)
    together = ops.brightness(images, strength)
    for place in range(4):
        assert torch.equal(
            together[place], ops.brightness(images[place : place + 1], strength[place : place + 1])[0]
        )
    assert torch.equal(together[1], images[1])


def test_the_policy_has_25_pairs_of_known_operations() -> None:
    policy = pairs()
    assert len(policy) == 25
    steps = [step for pair in policy for step in pair]
    assert all(step.name in KINDS and 0 <= step.probability <= 1 and 0 <= step.level <= 9 for step in steps)
    assert [(step.name, step.probability, step.level) for step in policy[3]] == [
        ("shear_y", 0.5, 8),
        ("translate_y", 0.7, 9),
    ]


def test_an_images_draw_is_its_own() -> None:
    images, ids = photographs(), torch.arange(12) + 5
    augment = AutoAugment()
    together = augment(images, ids, key=2)
    for place in range(12):
        alone = augment(images[place : place + 1], ids[place : place + 1], key=2)
        assert torch.equal(alone[0], together[place])
    assert not torch.equal(together, augment(images, ids, key=3))


def test_the_share_of_untouched_images_is_the_policys() -> None:
    n = 1500
    image = photographs(3)[2:]
    out = AutoAugment()(image.expand(n, 3, 32, 32), torch.arange(n), key=1)
    untouched = (out == image).flatten(1).all(1).float().mean().item()
    still = np.mean([(1 - a.probability) * (1 - b.probability) for a, b in pairs()])
    # Operations of level 0 and two translations back and forth add a little.
    assert still - 0.04 < untouched < still + 0.07


def test_grey_images_work() -> None:
    grey = photographs()[:, :1]
    assert AutoAugment()(grey, torch.arange(12), key=0).shape == grey.shape
