"""Every family by its published name, in the order of the published table."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from torch import Tensor

from nfm.data.cifar_c_files import CORRUPTIONS
from nfm.errors import UsageError, did_you_mean
from nfm.evaluate.corruptions.blurs import gaussian_blur, zoom_blur
from nfm.evaluate.corruptions.colour import brightness, contrast, saturate
from nfm.evaluate.corruptions.defocus import defocus_blur
from nfm.evaluate.corruptions.elastic import elastic_transform
from nfm.evaluate.corruptions.fog import fog
from nfm.evaluate.corruptions.frost import frost
from nfm.evaluate.corruptions.glass import glass_blur
from nfm.evaluate.corruptions.jpeg import jpeg_compression
from nfm.evaluate.corruptions.laws import gaussian_noise, impulse_noise, shot_noise, speckle_noise
from nfm.evaluate.corruptions.motion import motion_blur
from nfm.evaluate.corruptions.pixelate import pixelate
from nfm.evaluate.corruptions.snow import snow
from nfm.evaluate.corruptions.spatter import spatter

# (pixels uint8 (B, 3, H, W), stream of the batch, *constants of the severity) -> fresh uint8 (B, 3, H, W)
Family = Callable[..., Tensor]

_FUNCTIONS: tuple[Family, ...] = (
    gaussian_noise, shot_noise, impulse_noise, defocus_blur, glass_blur, motion_blur, zoom_blur,
    snow, frost, fog, brightness, contrast, elastic_transform, pixelate, jpeg_compression,
    speckle_noise, gaussian_blur, spatter, saturate,
)  # fmt: skip
FAMILIES: Mapping[str, Family] = dict(zip(CORRUPTIONS, _FUNCTIONS, strict=True))

# No draw: these give the published bytes of CIFAR-10-C.
DETERMINISTIC = (
    "defocus_blur", "zoom_blur", "brightness", "contrast", "pixelate", "jpeg_compression", "gaussian_blur",
    "saturate",
)  # fmt: skip


def check_family(family: str) -> str:
    """Return `family`, or refuse an unknown one."""
    if family not in FAMILIES:
        raise UsageError(
            f"unknown corruption {family!r}; known: {', '.join(FAMILIES)}{did_you_mean(family, FAMILIES)}"
        )
    return family
