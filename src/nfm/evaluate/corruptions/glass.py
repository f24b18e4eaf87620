"""Glass blur: pixels are exchanged with near ones, one after another, between two Gaussian blurs.

In the published generator the exchange copies: when both halves of a swap are views of one array, the second
assignment reads what the first has written. So pixel by pixel, from the last to the first, each takes the
*current* colour of a near one. Which original pixel that is can be found for all pixels at once:
every pixel points at where it looks, and pointers are followed by doubling until they end.
"""

from __future__ import annotations

import torch
from torch import Tensor

from nfm.evaluate.corruptions.smooth import smooth
from nfm.evaluate.keyed import Stream


def glass_blur(pixels: Tensor, stream: Stream, sigma: float, reach: float, rounds: float) -> Tensor:
    """Blur by `sigma`, let each pixel take one from `reach` pixels around, `rounds` times, and blur again."""
    blurred = smooth(pixels, sigma)
    for turn in range(int(rounds)):
        drawn = stream.uniform((2, *pixels.shape[2:]), purpose=turn + 1)
        steps = (drawn * (2 * int(reach))).to(torch.int32) - int(reach)  # -reach ... reach - 1
        blurred = take(blurred, find_sources(steps, int(reach)))
    return smooth(blurred, sigma)


def find_sources(steps: Tensor, reach: int) -> Tensor:
    """Return which original pixel ends up at each place: int32 (B, H * W), places counted row by row.

    steps: int32 (B, 2, H, W), how far down and right each pixel looks.
    A node is a pixel after its turn (0 ... HW - 1) or before it (HW ... 2 HW - 1); the latter ends a chain.
    """
    batch, _, height, width = steps.shape
    size = height * width
    place = torch.arange(size, dtype=torch.int32, device=steps.device)
    moved = _inside(height, width, reach, steps.device)
    target = place + (steps[:, 0] * width + steps[:, 1]).flatten(1) * moved
    had_its_turn = (target > place) & moved.index_select(0, target.flatten()).view_as(target).bool()
    pointer = target + size * ~had_its_turn
    nodes = torch.cat([pointer, (place + size).expand(batch, -1)], dim=1)
    nodes += torch.arange(0, 2 * size * batch, 2 * size, dtype=torch.int32, device=steps.device)[:, None]
    while bool(had_its_turn.any()):
        nodes = nodes.flatten().index_select(0, nodes.flatten()).view_as(nodes)
        had_its_turn = nodes[:, :size].remainder(2 * size) < size
    return nodes[:, :size].remainder(2 * size) - size


def _inside(height: int, width: int, reach: int, device: torch.device) -> Tensor:
    """Return which pixels have a turn, row by row: int32 (H * W,), 0 or 1."""
    inside = torch.zeros(height, width, dtype=torch.int32, device=device)
    inside[reach + 1 : height - reach + 1, reach + 1 : width - reach + 1] = 1
    return inside.flatten()


def take(pixels: Tensor, sources: Tensor) -> Tensor:
    """Return uint8 (B, C, H, W) whose pixel at each place is the one that `sources`, (B, H * W), names."""
    batch, channels, height, width = pixels.shape
    first = torch.arange(0, batch * channels * height * width, height * width, dtype=torch.int32)
    places = first.to(pixels.device).view(batch, channels, 1) + sources[:, None]
    return pixels.flatten().index_select(0, places.flatten()).view_as(pixels)
