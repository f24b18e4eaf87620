"""AutoAugment's policy for CIFAR-10 (Cubuk et al. 2019, table 7): 25 pairs of operations, one an example."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from nfm.data import image_ops as ops
from nfm.data.augment import check_images
from nfm.data.draws import uniforms
from nfm.errors import ShapeError

LEVELS = 9  # magnitudes are numbered 0 to 9
SIDE = 150 / 331  # the largest translation as a share of the side (table 6: 150 pixels of 331)

# A pair is two times operation, probability, magnitude.
POLICY = """
    invert .1 7 contrast .2 6 | rotate .7 2 translate_x .3 9 | sharpness .8 1 sharpness .9 3
    shear_y .5 8 translate_y .7 9 | auto_contrast .5 8 equalize .9 2 | shear_y .2 7 posterize .3 7
    color .4 3 brightness .6 7 | sharpness .3 9 brightness .7 9 | equalize .6 5 equalize .5 1
    contrast .6 7 sharpness .6 5 | color .7 7 translate_x .5 8 | equalize .3 7 auto_contrast .4 8
    translate_y .4 3 sharpness .2 6 | brightness .9 6 color .2 8 | solarize .5 2 invert .0 3
    equalize .2 0 auto_contrast .6 0 | equalize .2 8 equalize .6 4 | color .9 9 equalize .6 6
    auto_contrast .8 4 solarize .2 8 | brightness .1 3 color .7 0 | solarize .4 5 auto_contrast .9 3
    translate_y .9 9 translate_y .7 9 | auto_contrast .9 2 solarize .8 3 | equalize .8 8 invert .1 3
    translate_y .7 9 auto_contrast .9 1
"""

Operation = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Kind:
    """An operation and the strength of a magnitude; signed: half of the examples get the opposite."""

    apply: Operation
    strength: Callable[[float, int], float]
    signed: bool


def _enhance(level: float, side: int) -> float:
    return 0.9 * level / LEVELS


# Strength by magnitude and side length; the ranges are those of table 6.
KINDS = {
    "shear_x": Kind(ops.shear_x, lambda level, side: 0.3 * level / LEVELS, True),
    "shear_y": Kind(ops.shear_y, lambda level, side: 0.3 * level / LEVELS, True),
    "translate_x": Kind(ops.translate_x, lambda level, side: SIDE * side * level / LEVELS, True),
    "translate_y": Kind(ops.translate_y, lambda level, side: SIDE * side * level / LEVELS, True),
    "rotate": Kind(ops.rotate, lambda level, side: 30 * level / LEVELS, True),
    "brightness": Kind(lambda x, s: ops.brightness(x, 1 + s), _enhance, True),
    "color": Kind(lambda x, s: ops.color(x, 1 + s), _enhance, True),
    "contrast": Kind(lambda x, s: ops.contrast(x, 1 + s), _enhance, True),
    "sharpness": Kind(lambda x, s: ops.sharpness(x, 1 + s), _enhance, True),
    "posterize": Kind(ops.posterize, lambda level, side: 8 - round(4 * level / LEVELS), False),
    "solarize": Kind(ops.solarize, lambda level, side: 255 * (1 - level / LEVELS), False),
    "auto_contrast": Kind(ops.auto_contrast, lambda level, side: 0, False),
    "equalize": Kind(ops.equalize, lambda level, side: 0, False),
    "invert": Kind(ops.invert, lambda level, side: 0, False),
}


@dataclass(frozen=True)
class Step:
    name: str
    probability: float
    level: int


def pairs(policy: str = POLICY) -> tuple[tuple[Step, Step], ...]:
    """Return the policy as pairs of steps."""
    words = policy.replace("|", " ").split()
    steps = [Step(words[i], float(words[i + 1]), int(words[i + 2])) for i in range(0, len(words), 3)]
    return tuple(zip(steps[::2], steps[1::2], strict=True))


@dataclass(frozen=True)
class AutoAugment:
    """Give each image one of the 25 pairs; each operation of it happens with its own probability."""

    def __call__(self, images: Tensor, ids: Tensor, *, key: int) -> Tensor:
        """Return new uint8 images (n,1 or 3,H,W)."""
        check_images(images)
        if images.dtype != torch.uint8 or images.shape[1] not in (1, 3):
            raise ShapeError(f"AutoAugment needs uint8 grey or RGB, got {images.dtype} {tuple(images.shape)}")
        draw = uniforms(ids, 5, key=key)  # pair; chance and sign of its first step, of its second
        policy = pairs()
        chosen = (draw[:, 0] * len(policy)).astype(np.int64)
        images = images.clone()
        for place in (0, 1):
            chance, sign = draw[:, 1 + 2 * place], np.where(draw[:, 2 + 2 * place] < 0.5, -1.0, 1.0)
            for number in np.unique(chosen):
                step = policy[number][place]
                hit = np.flatnonzero((chosen == number) & (chance < step.probability))
                if len(hit):
                    where = torch.from_numpy(hit)
                    images[where] = _applied(images[where], step, torch.from_numpy(sign[hit]))
        return images


def _applied(images: Tensor, step: Step, sign: Tensor) -> Tensor:
    kind = KINDS[step.name]
    strength = kind.strength(step.level, images.shape[3]) * (sign if kind.signed else torch.ones_like(sign))
    return kind.apply(images, strength)
