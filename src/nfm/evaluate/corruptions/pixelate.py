"""Pixelation: an image is made smaller and larger again. It gives the published bytes of CIFAR-10-C."""

from __future__ import annotations

import functools

import numpy as np
import torch
from torch import Tensor

from nfm.evaluate.keyed import Stream

BITS = 22  # Pillow's resampling of 8-bit images has weights of 2**-22


def pixelate(pixels: Tensor, stream: Stream, share: float) -> Tensor:
    """Shrink each side to `share` of it and back, both with a box filter as Pillow has it, the width first."""
    for _ in range(2):  # whole rows are taken much faster than columns; turned twice, an image is as it was
        pixels = _shrink_and_back(pixels.mT.contiguous(), share)
    return pixels


def _shrink_and_back(pixels: Tensor, share: float) -> Tensor:
    """Do it with the rows."""
    taps = _taps(pixels.shape[2], share)
    taken = [pixels.index_select(2, places.to(pixels.device)) for places, _ in taps]
    if len(taps) == 2:  # (a + b + 1) / 2, within 8 bits
        return (taken[0] | taken[1]) - ((taken[0] ^ taken[1]) >> 1)
    total = torch.full((), 1 << (BITS - 1), dtype=torch.int32, device=pixels.device)
    for part, (_, weights) in zip(taken, taps, strict=True):
        total = part.to(torch.int32).mul_(weights.to(pixels.device)[:, None]).add_(total)
    return (total >> BITS).to(torch.uint8)


@functools.cache
def _taps(size: int, share: float) -> list[tuple[Tensor, Tensor]]:
    """Return for the t-th pixel under the box that each place shows where it is, and its weight: (size,) each.

    On the way back each place takes the one pixel under its centre. A box with fewer pixels than the largest
    repeats its first one with weight 0; if the largest has two, one pixel alone is twice a half.
    """
    small = int(size * share)
    scale = size / small
    centre = (np.arange(small) + 0.5) * scale
    first, last = ((centre + half * scale + 0.5).astype(int) for half in (-0.5, 0.5))
    places = first[:, None] + np.arange((np.minimum(last, size) - first).max())
    inside = (places - centre[:, None] + 0.5) / scale
    covered = (inside > -0.5) & (inside <= 0.5) & (places < np.minimum(last, size)[:, None])
    weights = np.floor(0.5 + covered / covered.sum(1, keepdims=True) * 2**BITS)
    shown = ((np.arange(size) + 0.5) * (small / size)).astype(int)
    places = np.where(covered, places, places[np.arange(small), covered.argmax(1)][:, None])
    columns = zip(places[shown].T, weights[shown].T, strict=True)
    return [(torch.from_numpy(p.copy()), torch.from_numpy(w).int()) for p, w in columns if w.any()]
