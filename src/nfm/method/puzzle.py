"""The puzzle of Puzzle Mix (Kim, Choo & Song 2020): which block of two images to show, and where to move it.

A mask m (1: all of the image itself, 0: all of its partner) takes the values l / (labels - 1) on a grid of blocks. It
minimises the paper's objective (Section 4; z there is 1 - m):

    - sum_i (m_i s_i + (1 - m_i) t_i)                 the saliency that is shown, s of the image, t of its partner
    + beta sum_ij (m_i - m_j)^2                       smooth labels
    + beta gamma sum_ij phi_ij(m_i, m_j)              smooth data: the step in the pixels over the border of i and j
    - eta sum_i log p(m_i)                            the prior: labels are Binomial(labels - 1, weight)

and then each image is moved by the permutation Pi of blocks that minimises - sum (Pi^T s) m + xi <Pi, C>, where C is
the squared distance of two blocks. phi is linear in each label between the images' own values at 0 and 1. Factors that
depend on the grid are those of the authors' code, with which their numbers go.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from nfm.errors import need
from nfm.method.labelling import Floats, Ints, Neighbours, minimise

TINY = 1e-8  # added to a probability before its logarithm (the authors' code)


@dataclass(frozen=True)
class Objective:
    """The weights of the objective, and the size in pixels of the cells whose steps over a border count."""

    labels: int
    beta: float
    gamma: float
    eta: float
    cell: int


def block_saliency(gradient: Tensor, blocks: int) -> Tensor:
    """Return the share [n, blocks, blocks] of each block in an image's saliency: the gradient's length a pixel.

    gradient: [n, channels, height, width]. An image without a gradient is salient everywhere alike.
    """
    length = gradient.norm(dim=1, keepdim=True)
    mean = F.adaptive_avg_pool2d(length, blocks)[:, 0]  # blocks divide the sides: each is a block's mean
    total = mean.sum((1, 2), keepdim=True)
    return torch.where(total > 0, mean / total.clamp_min(1e-30), 1 / blocks**2)


def border_steps(above: Tensor, below: Tensor, blocks: int, cell: int) -> Tensor:
    """Return the mean step over each border of the grid [n, pairs]: from a block of `above` to one of `below`.

    Pixels are averaged over cells of up to `cell` pixels; the pairs are in the order of `Neighbours.grid`.
    """
    rows = _steps_down(above, below, blocks, cell).flatten(1)
    turned = _steps_down(above.transpose(2, 3), below.transpose(2, 3), blocks, cell)
    return torch.cat([rows, turned.transpose(1, 2).flatten(1)], 1)


def _steps_down(above: Tensor, below: Tensor, blocks: int, cell: int) -> Tensor:
    sizes = [largest_divisor(side // blocks, cell) for side in above.shape[2:]]
    per_block = above.shape[2] // blocks // sizes[0]
    upper, lower = (F.avg_pool2d(images, sizes) for images in (above, below))
    last, first = upper[:, :, per_block - 1 :: per_block][:, :, :-1], lower[:, :, per_block::per_block]
    return F.adaptive_avg_pool2d((last - first).abs().mean(1), (blocks - 1, blocks))


def largest_divisor(size: int, most: int) -> int:
    """Return the largest divisor of `size` that is at most `most`."""
    return next(divisor for divisor in range(min(size, most), 0, -1) if size % divisor == 0)


def energies(
    x: Tensor, saliency: Tensor, partner: Tensor, weight: float, objective: Objective
) -> tuple[Floats, Floats, Neighbours]:
    """Return unary [n, places, labels] and attraction [n, pairs] of the objective, up to constants."""
    blocks, steps = saliency.shape[1], objective.labels - 1
    neighbours = Neighbours.grid(blocks, blocks)
    label = np.arange(objective.labels) / steps
    shown = saliency.flatten(1).double().cpu().numpy()
    hidden = shown[partner.cpu().numpy()]
    unary = -(shown[:, :, None] * label + hidden[:, :, None] * (1 - label))
    unary -= objective.eta / blocks**2 * np.log(_binomial(steps, weight) + TINY)
    beta = objective.beta / (16 * blocks)
    # d[a][b]: the step from image a above the border to image b below it; 1 is the image itself, 0 its partner.
    images = (x[partner], x)
    d = [
        [border_steps(above, below, blocks, objective.cell).double().cpu().numpy() for below in images]
        for above in images
    ]
    slopes = d[1][0] - d[0][0], d[0][1] - d[0][0]  # of phi in the first and in the second label
    for ends, slope in zip((neighbours.first, neighbours.second), slopes, strict=True):
        linear = beta * objective.gamma * slope[:, :, None] * label + beta * label**2
        np.add.at(unary.swapaxes(0, 1), ends, linear.swapaxes(0, 1))
    return unary, 2 * beta + beta * objective.gamma * (d[1][0] + d[0][1] - d[1][1] - d[0][0]), neighbours


def _binomial(steps: int, weight: float) -> Floats:
    """Return the probability of each label under Binomial(steps, weight)."""
    return np.array([math.comb(steps, k) * weight**k * (1 - weight) ** (steps - k) for k in range(steps + 1)])


def best_masks(x: Tensor, saliency: Tensor, partner: Tensor, weight: float, objective: Objective) -> Tensor:
    """Return the masks of least energy, float64 [n, blocks, blocks]."""
    labels = minimise(*energies(x, saliency, partner, weight, objective))
    return torch.from_numpy(labels / (objective.labels - 1)).view(saliency.shape)


def best_moves(mask: Tensor, saliency: Tensor, cost: float) -> Ints:
    """Return for each place of the mask the block to show there, int64 [n, places]: a permutation of each image.

    mask, saliency: [n, blocks, blocks]. It is the exact minimum, image by image.
    """
    n, blocks = mask.shape[:2]
    distance = cost * _distances(blocks)
    gain = saliency.flatten(1).double().cpu().numpy()[:, :, None] * mask.flatten(1).cpu().numpy()[:, None, :]
    moves = np.tile(np.arange(blocks**2), (n, 1))
    prices = distance - gain  # [n, block, place]
    stays = prices.diagonal(axis1=1, axis2=2) <= prices.min(axis=2)
    for index in np.flatnonzero(~stays.all(axis=1)):
        block, place = _assignment()(prices[index])
        moves[index, place] = block
    return moves


def _distances(blocks: int) -> Floats:
    """Return the squared distance of each block to each place, in units of the grid's side less one."""
    row, column = np.divmod(np.arange(blocks**2), blocks)
    squared = np.subtract.outer(row, row) ** 2 + np.subtract.outer(column, column) ** 2
    return squared / max(blocks - 1, 1) ** 2


def moved(x: Tensor, moves: Ints, blocks: int) -> Tensor:
    """Return images whose block at each place is the one that `moves` says."""
    n, channels, height, width = x.shape
    tall, wide = height // blocks, width // blocks
    tiles = x.view(n, channels, blocks, tall, blocks, wide).permute(0, 2, 4, 1, 3, 5).flatten(1, 2)
    rows = torch.arange(n, device=x.device)[:, None]
    tiles = tiles[rows, torch.from_numpy(moves).to(x.device)].view(n, blocks, blocks, channels, tall, wide)
    return tiles.permute(0, 3, 1, 4, 2, 5).reshape(x.shape)


def _assignment() -> Any:
    try:
        from scipy.optimize import linear_sum_assignment
    except (ImportError, RuntimeError) as error:
        raise need("scipy", "data", "puzzlemix", error) from error
    return linear_sum_assignment


def enlarged(mask: Tensor, height: int, width: int) -> Tensor:
    """Return masks [n, rows, columns] as one value a pixel, [n, height, width]."""
    return mask.repeat_interleave(height // mask.shape[1], 1).repeat_interleave(width // mask.shape[2], 2)
