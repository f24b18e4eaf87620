"""Pixelation: an image is made smaller and larger again. It gives the published bytes of CIFAR-10-C."""

from __future__ import annotations

import functools

import numpy as np
import torch
from torch import Tensor

from nfm.evaluate.keyed import Stream

BITS = 22  # Pillow's resampling of 8-bit images has weights of 2**-22


def pixelate(pixels: Tensor, stream: Stream, share: float) -> Tensor:
    """Shrink each side to `share` of it and back, both with a box filter as Pillow has it.

    The way back takes one pixel for each, so it is left to the end of each axis's way down.
    """
    for axis in (3, 2):
        small = _resize(pixels, int(pixels.shape[axis] * share), axis)
        back, _ = _box_taps(small.shape[axis], pixels.shape[axis])[0]
        pixels = small.index_select(axis, back.to(pixels.device))
    return pixels


def _resize(pixels: Tensor, size: int, axis: int) -> Tensor:
    """Return uint8 images shrunk to `size` along `axis`: sums of whole numbers, rounded once."""
    total = torch.full((), 1 << (BITS - 1), dtype=torch.int32, device=pixels.device)
    for places, weights in _box_taps(pixels.shape[axis], size):
        taken = pixels.index_select(axis, places.to(pixels.device)).to(torch.int32)
        total = taken.mul_(weights.to(pixels.device).view([-1] + [1] * (3 - axis))).add_(total)
    return (total >> BITS).to(torch.uint8)


@functools.cache
def _box_taps(old: int, new: int) -> list[tuple[Tensor, Tensor]]:
    """Return the taps of a box filter: for the t-th pixel under each box its place and weight, (new,) each."""
    scale = old / new
    width = max(scale, 1.0)
    centre = (np.arange(new) + 0.5) * scale
    first = np.maximum((centre - width / 2 + 0.5).astype(int), 0)
    last = np.minimum((centre + width / 2 + 0.5).astype(int), old)
    places = first[:, None] + np.arange((last - first).max())
    inside = (places + 0.5 - centre[:, None]) / width
    covered = (inside > -0.5) & (inside <= 0.5) & (places < last[:, None])
    weights = np.floor(0.5 + covered / covered.sum(1, keepdims=True) * 2**BITS)
    columns = zip(np.minimum(places, old - 1).T, weights.T, strict=True)
    return [(torch.from_numpy(p.copy()), torch.from_numpy(w).int()) for p, w in columns if w.any()]
