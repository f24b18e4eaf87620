"""Puzzle Mix (Kim, Choo & Song 2020): mix the salient blocks of two images, moved so that both can be seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from nfm.core.draw import Draw
from nfm.core.mixing import Criterion, Pairing, mixed_loss
from nfm.core.weights import check_shape, sample_weights
from nfm.errors import ShapeError, UsageError
from nfm.method.dry_run import Plan
from nfm.method.feature_mixup import Outcome
from nfm.method.gradients import Mode, check_mode, pixel_gradient, probing
from nfm.method.labelling import Ints
from nfm.method.pixels import check_pixels
from nfm.method.puzzle import (
    Objective,
    best_masks,
    best_moves,
    block_saliency,
    enlarged,
    largest_divisor,
    moved,
)
from nfm.method.roots import forward_plain, root_of
from nfm.method.scheme import Scheme, plain_outcome
from nfm.method.settings import check_switch, is_number, is_whole
from nfm.method.sites import INPUT
from nfm.randomness import numpy_generator, torch_generator

GRIDS = (2, 4, 8, 16)  # blocks a side, one of them drawn each step (the authors' code)


@dataclass(frozen=True, eq=False, kw_only=True)
class PuzzleDraw(Draw):
    """A draw with its masks [n, blocks, blocks] and the moves of the images and of their partners."""

    mask: Tensor
    moves: tuple[Ints, Ints] | None

    def mix(self, x: Tensor) -> Tensor:
        """Return the puzzles of the images `x`."""
        partner = self.partner.to(x.device)
        images = [x.detach().float(), x.detach().float()[partner]]
        if self.moves is not None:
            images = [
                moved(part, moves, self.mask.shape[1]) for part, moves in zip(images, self.moves, strict=True)
            ]
        mask = enlarged(self.mask.to(images[0]), *x.shape[2:])[:, None]
        return (mask * images[0] + (1 - mask) * images[1]).to(x.dtype)


class PuzzleMix(Scheme):
    """Train on puzzles of two images, labels weighted by the share of each example's own mask.

    An extra pass finds the saliency: the length of the loss's gradient in the pixels, with the network in `mode`
    (``eval``: batch norm uses its running statistics, and never moves them). Masks minimise the objective of
    `nfm.method.puzzle` exactly, by one minimum cut for the batch; so does `transport`, by one assignment an image, on
    blocks of up to `t_size` pixels at the price `t_eps` of a move. `alpha`: the weight of the prior is Beta(alpha,
    alpha), one a batch. Images are [n, channels, height, width] in [0, 1], their sides even. Needs scipy.
    """

    def __init__(
        self,
        alpha: float = 1.0,
        n_labels: int = 3,  # these and the following: the authors' commands for CIFAR-100, PreActResNet-18
        beta: float = 1.2,
        gamma: float = 0.5,
        eta: float = 0.2,
        neigh_size: int = 4,
        *,
        transport: bool = True,
        t_size: int = 4,
        t_eps: float = 0.8,
        grids: Sequence[int] = GRIDS,
        mode: Mode = "eval",
        seed: int = 0,
    ) -> None:
        super().__init__(seed)
        self.alpha = check_shape("alpha", alpha, zero=True)
        _check_whole(n_labels=(n_labels, 2), neigh_size=(neigh_size, 1), t_size=(t_size, 1))
        _check_numbers(beta=(beta, None), gamma=(gamma, 1.0), eta=(eta, None), t_eps=(t_eps, None))
        check_mode(mode)
        self.objective = Objective(n_labels, beta, gamma, eta, neigh_size)
        self.transport = check_switch("transport", transport)
        self.t_size, self.t_eps, self.mode = t_size, t_eps, mode
        self.grids = _check_grids(grids)

    def __repr__(self) -> str:
        moves = f"moves of {self.t_size} pixels at {self.t_eps:g}" if self.transport else "no transport"
        grids = "/".join(map(str, self.grids))
        return (
            f"PuzzleMix(alpha={self.alpha:g}, {self.objective!r}, {grids} blocks a side, {moves}, "
            f"network in {self.mode} mode for the saliency, seed={self.seed})"
        )

    def train(
        self, model: nn.Module, x: Any, y: Any, *, criterion: Criterion, step: int, draw: Draw | None
    ) -> Outcome:
        """Find the saliency, solve the puzzles of `step`, and return the loss on them."""
        if self.alpha == 0:
            return plain_outcome(model, x, y, criterion=criterion)
        x = self.check_images(x)
        made = (
            draw if isinstance(draw, PuzzleDraw) else self.solve(model, x, y, criterion=criterion, step=step)
        )
        output = forward_plain(model, made.mix(x))
        return Outcome(mixed_loss(criterion, output, y, made.pairing), output, made)

    def solve(self, model: nn.Module, x: Tensor, y: Any, *, criterion: Criterion, step: int) -> PuzzleDraw:
        """Return the masks and moves of `step` for images in [0, 1]."""
        root = root_of(model)
        with probing(root, self.mode):
            gradient = pixel_gradient(root, x, y, criterion)
        images = x.detach().float()
        grid = self.grid_of(step, images.shape)
        partner = torch.randperm(len(x), generator=torch_generator(self.key(step, "partner")))
        weight = float(sample_weights(self.alpha, self.alpha, 1, self.key(step, "weight"), dominant=False)[0])
        mask = best_masks(images, block_saliency(gradient, grid), partner, weight, self.objective)
        pairing = Pairing(partner, mask.mean((1, 2)))
        moves = None
        if self.transport:
            fine = images.shape[3] // largest_divisor(images.shape[3] // grid, self.t_size)
            fine = fine if images.shape[2] % fine == 0 else grid
            mask = enlarged(mask, fine, fine)
            saliency = block_saliency(gradient, fine).cpu()
            moves = (
                best_moves(mask, saliency, self.t_eps),
                best_moves(1 - mask, saliency[partner], self.t_eps),
            )
        return PuzzleDraw(site=INPUT, step=step, pairing=pairing, mask=mask, moves=moves)

    def grid_of(self, step: int, shape: Sequence[int]) -> int:
        """Return the blocks a side of `step`, among those that divide the images' sides."""
        fitting = [grid for grid in self.grids if shape[2] % grid == shape[3] % grid == 0]
        return fitting[int(numpy_generator(self.key(step, "grid")).integers(len(fitting)))]

    def check_images(self, x: Any) -> Tensor:
        """Return images in [0, 1]; refuse what are none, or what none of the grids divides."""
        images = check_pixels(x, "puzzlemix")
        height, width = images.shape[2:]
        if not any(height % grid == width % grid == 0 for grid in self.grids):
            raise ShapeError(
                f"puzzlemix: expected images whose sides one of {', '.join(map(str, self.grids))} divides, got "
                f"{height}x{width}; crop or pad them, or choose other grids"
            )
        return images

    def check(self, model: nn.Module, x: Any) -> Plan:
        """Refuse what are no images in [0, 1] that one of the grids divides."""
        self.check_images(x)
        return super().check(model, x)


def _check_whole(**values: tuple[Any, int]) -> None:
    for name, (value, least) in values.items():
        if not is_whole(value) or value < least:
            raise UsageError(f"{name}: expected a whole number of at least {least}, got {value!r}")


def _check_numbers(**values: tuple[Any, float | None]) -> None:
    for name, (value, most) in values.items():
        top = float("inf") if most is None else most
        if not is_number(value) or not 0 <= value <= top:
            rule = "0 or greater" if most is None else f"from 0 to {most:g} (else neighbours may repel)"
            raise UsageError(f"{name}: expected a number {rule}, got {value!r}")


def _check_grids(grids: Sequence[int]) -> tuple[int, ...]:
    if isinstance(grids, str) or not isinstance(grids, Sequence) or not len(grids):
        raise UsageError(
            f"grids: expected one or more numbers of blocks a side, such as (4, 8), got {grids!r}"
        )
    _check_whole(**{f"grids[{place}]": (grid, 2) for place, grid in enumerate(grids)})
    return tuple(grids)
