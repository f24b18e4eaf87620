"""Corrupt a batch: the function for uint8 or float pixels, and the perturbation that suites are made of."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from nfm.data.cifar_c_files import SEVERITIES
from nfm.errors import ShapeError, UsageError
from nfm.evaluate.corruptions.constants import CONSTANTS, choose_constants
from nfm.evaluate.corruptions.families import FAMILIES, check_family
from nfm.evaluate.keyed import Stream
from nfm.evaluate.perturbation import Perturbation, check_images
from nfm.randomness import check_seed

SUBSTITUTES = {"frost": "generated, procedural frost"}
AT_ONCE = {"cpu": 2**17}  # pixels whose planes still lie in the processor's cache
AT_ONCE_ELSEWHERE = 2**22
SMALLEST = 8  # pixels a side: below, nothing is left of an image shrunk or shaken


@dataclass(frozen=True)
class Corruption(Perturbation):
    """A family of CIFAR-10-C and ImageNet-C, generated with the published constants; its level is the severity.

    ``constants="auto"`` takes those published for the nearest size of image ("cifar", "tiny", "imagenet").
    `source` goes into the rows. The draws depend on (seed, family, severity, id of the example).
    """

    family: str
    constants: str = "auto"
    source: str = field(init=False, default="generated")

    name: ClassVar[str] = "corruption"
    unit: ClassVar[str] = "severity"  # type: ignore[assignment]

    def __post_init__(self) -> None:
        check_family(self.family)
        choose_constants(self.constants, (32, 32))
        object.__setattr__(self, "source", SUBSTITUTES.get(self.family, "generated"))

    @property
    def label(self) -> str:
        """The family, with the constants where they are told: ``fog``, ``fog(constants=imagenet)``."""
        return self.family if self.constants == "auto" else f"{self.family}(constants={self.constants})"

    def check_level(self, level: float) -> float:
        """Return the severity, a whole number from 0 to 5, or refuse it."""
        if level not in (0, *SEVERITIES):
            raise UsageError(f"{self.family}: expected a severity from 0 to {SEVERITIES[-1]}, got {level!r}")
        return float(level)

    def stream(self, ids: Tensor, level: float, *, seed: int) -> Stream:
        """Return the random numbers of the family at a severity, keyed by example."""
        return Stream.of(ids, check_seed(seed), "corruption", self.family, int(level))

    def apply(self, x: Tensor, stream: Stream, level: float) -> Tensor:
        check_images(x, self.family)
        return self.apply_to_levels((x * 255).round_().to(torch.uint8), stream, int(level)).float().div_(255)

    def apply_to_levels(self, pixels: Tensor, stream: Stream, severity: int) -> Tensor:
        """Return uint8 (B, 3, H, W) corrupted. Grey images (B, 1, H, W) are grey RGB, of which red is kept."""
        channels, *size = pixels.shape[1:]
        if channels not in (1, 3) or min(size) < SMALLEST:
            raise ShapeError(
                f"{self.family}: expected images of 3 channels or 1, at least {SMALLEST}x{SMALLEST}, "
                f"got shape {tuple(pixels.shape)}"
            )
        numbers = CONSTANTS[choose_constants(self.constants, size)][self.family][severity - 1]
        count = max(1, AT_ONCE.get(pixels.device.type, AT_ONCE_ELSEWHERE) // (size[0] * size[1]))
        colour = pixels.expand(-1, 3, -1, -1).contiguous()
        parts = [
            FAMILIES[self.family](part, Stream(keys), *map(float, numbers))
            for part, keys in zip(colour.split(count), stream.keys.split(count), strict=True)
        ]
        return torch.cat(parts)[:, :channels]


def corrupt(
    images: Tensor, ids: Tensor, family: str, severity: int, *, seed: int = 0, constants: str = "auto"
) -> Tensor:
    """Return images corrupted; uint8 stays uint8, float32 in [0, 1] stays that, in steps of 1/255.

    images: (B, 3, H, W), or (B, 1, H, W) for grey; ids: int64 (B,). Batch size and order change no bit.

    >>> corrupt(torch.zeros(2, 3, 32, 32, dtype=torch.uint8), torch.arange(2), "brightness", 5).unique()
    tensor([76], dtype=torch.uint8)
    """
    change = Corruption(family, constants)
    if images.dtype != torch.uint8:
        return change(images, ids, severity, seed=seed)
    if images.dim() != 4 or ids.dtype != torch.int64 or ids.shape != images.shape[:1] or len(ids) == 0:
        raise ShapeError(
            "expected uint8 images (B, C, H, W) and int64 ids (B,), got shape "
            f"{tuple(images.shape)} and {ids.dtype} {tuple(ids.shape)}"
        )
    if change.check_level(severity) == 0:
        return images.clone()
    return change.apply_to_levels(images, change.stream(ids, severity, seed=seed), int(severity))
