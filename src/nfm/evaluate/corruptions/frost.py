"""Frost: a crop of a frozen window laid over the image. The window is procedural, a SUBSTITUTE.

The published generator crops photographs of frost that are not ours to ship. Here ridges of fractal noise
are scaled to the mean colour and the contrast of those photographs. Results on this family are
therefore comparable with each other, not with published numbers; rows say "generated, procedural frost".
"""

from __future__ import annotations

import functools

import numpy as np
import torch
from torch import Tensor

from nfm.evaluate.corruptions.planes import to_uint8
from nfm.evaluate.keyed import Stream
from nfm.randomness import fold, numpy_generator

# Mean red, green, blue and the deviation, in levels, measured on the published textures frost1 to frost5
# (make_cifar_c.py draws among the first five of its six).
WINDOWS = (
    (78, 149, 166, 22),
    (201, 205, 214, 23),
    (201, 205, 214, 23),
    (138, 153, 165, 30),
    (112, 123, 135, 43),
)
HAIR = 2.0**-10  # levels: whole numbers stay whole in float32
SLOPE = 1.6  # the power of a photograph at frequency f falls as f**-SLOPE: their mean


def frost(pixels: Tensor, stream: Stream, kept: float, opacity: float) -> Tensor:
    """Return `kept` of the image plus `opacity` of a random crop of a random window."""
    height, width = pixels.shape[2:]
    windows = draw_windows(2 << (max(height, width) - 1).bit_length()).to(pixels.device)
    count, _, side, _ = windows.shape
    limits = torch.tensor([count, side - height, side - width], device=pixels.device)
    chosen, top, left = (stream.uniform((3,)) * limits).to(torch.int32).unbind(1)
    rows, channels = (torch.arange(size, device=pixels.device) for size in (height, 3))
    plane = chosen[:, None] * 3 + channels
    start = (plane[..., None] * side + (top[:, None] + rows)[:, None]) * side + left[:, None, None]
    strips = windows.flatten().unfold(0, width, 1)  # every run of `width` values, none of them copied
    crop = strips.index_select(0, start.flatten()).view_as(pixels)
    return to_uint8((pixels * kept).add_(crop * opacity + HAIR).clamp_(0, 255))


@functools.lru_cache(maxsize=4)
def draw_windows(side: int) -> Tensor:
    """Return the five windows: uint8 (5, 3, side, side), always the same ones."""
    return torch.from_numpy(np.stack([_draw_window(side, number) for number in range(len(WINDOWS))]))


def _draw_window(side: int, number: int) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    """Return one window: ridges, the crests between the valleys of fractal noise, in its colour."""
    generator = numpy_generator(fold("corruption", "frost", number))
    ridges = np.zeros((side, side))
    for _ in range(2):  # two sets of crystals that cross
        ridges -= np.abs(_fractal(generator.standard_normal((side, side))))
    ridges = (ridges - ridges.mean()) / ridges.std()
    *colour, deviation = WINDOWS[number]
    return np.clip(np.array(colour)[:, None, None] + deviation * ridges, 0, 255).astype(np.uint8)


def _fractal(
    white: np.ndarray[tuple[int, ...], np.dtype[np.float64]],
) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """Return white noise (side, side) coloured to power f**-SLOPE."""
    side = len(white)
    frequency = np.hypot(np.fft.fftfreq(side)[:, None], np.fft.rfftfreq(side))
    frequency[0, 0] = np.inf
    return np.fft.irfft2(np.fft.rfft2(white) * frequency ** (-SLOPE / 2), s=(side, side))
