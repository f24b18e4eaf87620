"""Puzzle Mix against brute force: all masks of 2x2 and 3x3 grids, all moves of 2x2, and a loop over pixels."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import nfm
from comparing import assert_close, assert_same, flat, gradients
from nets import ConvNet, build
from nfm.core.weights import sample_weights
from nfm.method.labelling import Neighbours, energy, minimise
from nfm.method.puzzle import Objective, best_masks, best_moves, block_saliency, border_steps, energies, moved

DEFAULT = Objective(labels=3, beta=1.2, gamma=0.5, eta=0.2, cell=4)


def images(size: int, side: int, seed: int) -> Tensor:
    return torch.rand(size, 2, side, side, generator=torch.Generator().manual_seed(seed))


def saliency_of(size: int, blocks: int, seed: int) -> Tensor:
    values = torch.rand(size, blocks, blocks, generator=torch.Generator().manual_seed(100 + seed)) ** 3
    return values / values.sum((1, 2), keepdim=True)


def step_over(
    above: Tensor, below: Tensor, block: tuple[int, int], other: tuple[int, int], size: int, cell: int
) -> float:
    """Return the mean step in the cells from a block of one image to its neighbour in another, cell by cell."""

    def mean(image: Tensor, row: int, column: int) -> Tensor:
        return image[:, row : row + cell, column : column + cell].mean((1, 2))

    down = other[0] > block[0]
    steps = []
    for offset in range(0, size, cell):
        if down:
            one = mean(above, block[0] * size + size - cell, block[1] * size + offset)
            two = mean(below, other[0] * size, other[1] * size + offset)
        else:
            one = mean(above, block[0] * size + offset, block[1] * size + size - cell)
            two = mean(below, other[0] * size + offset, other[1] * size)
        steps.append(float((one - two).abs().mean()))
    return sum(steps) / len(steps)


class Puzzle:
    """One pair of images, and the paper's objective of a mask of it, term by term."""

    def __init__(
        self, x: Tensor, other: Tensor, s: Tensor, t: Tensor, weight: float, made: Objective
    ) -> None:
        self.s, self.t, self.weight, self.made, self.blocks = s, t, weight, made, len(s)
        size = x.shape[1] // self.blocks
        cell = max(divisor for divisor in range(1, made.cell + 1) if size % divisor == 0)
        self.places = list(itertools.product(range(self.blocks), repeat=2))
        self.steps = {  # (place, neighbour, image above, image below): 1 is the image itself, 0 its partner
            (place, neighbour, a, b): step_over((other, x)[a], (other, x)[b], place, neighbour, size, cell)
            for place in self.places
            for neighbour in ((place[0] + 1, place[1]), (place[0], place[1] + 1))
            if neighbour in self.places
            for a, b in itertools.product((0, 1), repeat=2)
        }

    def objective(self, values: Sequence[float]) -> float:
        mask, made = dict(zip(self.places, values, strict=True)), self.made
        beta, steps = made.beta / (16 * self.blocks), made.labels - 1
        total = 0.0
        for place, m in mask.items():
            k = round(m * steps)
            chance = math.comb(steps, k) * self.weight**k * (1 - self.weight) ** (steps - k)
            total += -m * float(self.s[place]) - (1 - m) * float(self.t[place])
            total -= made.eta / self.blocks**2 * math.log(chance + 1e-8)
        for (place, neighbour, a, b), step in self.steps.items():
            m, n = mask[place], mask[neighbour]
            shares = (m if a else 1 - m) * (n if b else 1 - n)
            total += beta * made.gamma * shares * step + beta * (m - n) ** 2 / 4  # each pair comes four times
        return total


def all_masks(blocks: int, labels: int) -> Iterator[tuple[float, ...]]:
    """Yield every mask of a grid, place by place."""
    return itertools.product([label / (labels - 1) for label in range(labels)], repeat=blocks**2)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "made",
    [
        DEFAULT,
        Objective(3, 12.0, 1.0, 0.2, 2),
        Objective(2, 3.0, 0.5, 1.0, 1),
        Objective(4, 6.0, 0.9, 0.0, 4),
    ],
    ids=["the authors'", "strong", "two labels", "four labels"],
)
def test_masks_have_the_least_objective_of_all(seed: int, made: Objective) -> None:
    """2x2: every mask there is."""
    x, s = images(3, 8, seed), saliency_of(3, 2, seed)
    partner = torch.tensor([1, 2, 0])
    weight = 0.1 + 0.25 * seed
    found = best_masks(x, s, partner, weight, made)
    for i, j in enumerate(partner.tolist()):
        puzzle = Puzzle(x[i], x[j], s[i], s[j], weight, made)
        values = [puzzle.objective(mask) for mask in all_masks(2, made.labels)]
        assert puzzle.objective(found[i].flatten().tolist()) <= min(values) + 1e-5
        assert max(values) > min(values) + 1e-3  # the control: masks differ


@pytest.mark.parametrize("beta", [1.2, 8.0])
def test_masks_have_the_least_energy_on_a_larger_grid(beta: float) -> None:
    """3x3: every labelling there is, by the energy; and the energy is the objective up to a constant."""
    made = Objective(3, beta, 1.0, 0.3, 4)
    x, s, partner = images(2, 9, 3), saliency_of(2, 3, 3), torch.tensor([1, 0])
    unary, attraction, neighbours = energies(x, s, partner, 0.4, made)
    labels = np.array(list(itertools.product(range(3), repeat=9)))
    found = minimise(unary, attraction, neighbours)
    for i in range(2):
        every = energy(
            labels, np.broadcast_to(unary[i], (len(labels), *unary.shape[1:])),
            np.broadcast_to(attraction[i], (len(labels), attraction.shape[1])), neighbours,
        )  # fmt: skip
        assert energy(found, unary, attraction, neighbours)[i] <= every.min() + 1e-4
        puzzle = Puzzle(x[i], x[1 - i], s[i], s[1 - i], 0.4, made)
        differences = [puzzle.objective(labels[row] / 2) - every[row] for row in (0, 17, 4242, 19682)]
        assert max(differences) - min(differences) < 1e-6


@given(
    rows=st.integers(1, 3), columns=st.integers(1, 3), steps=st.integers(1, 2), seed=st.integers(0, 2**32 - 1),
    strength=st.sampled_from([0.0, 0.1, 3.0]),
)  # fmt: skip
def test_any_labelling_is_minimal(rows: int, columns: int, steps: int, seed: int, strength: float) -> None:
    generator = np.random.default_rng(seed)
    neighbours = Neighbours.grid(rows, columns)
    unary = generator.normal(size=(2, rows * columns, steps + 1))
    attraction = strength * generator.random((2, len(neighbours.first)))
    found = energy(minimise(unary, attraction, neighbours), unary, attraction, neighbours)
    labels = np.array(list(itertools.product(range(steps + 1), repeat=rows * columns)))
    for i in range(2):
        every = energy(
            labels, np.broadcast_to(unary[i], (len(labels), *unary.shape[1:])),
            np.broadcast_to(attraction[i], (len(labels), attraction.shape[1])), neighbours,
        )  # fmt: skip
        assert found[i] <= every.min() + 1e-4


def test_salient_blocks_are_shown() -> None:
    x = images(2, 8, 1)
    s = torch.tensor([[[0.9, 0.1], [0.0, 0.0]], [[0.0, 0.0], [0.1, 0.9]]])
    first, second = best_masks(x, s, torch.tensor([1, 0]), 0.5, DEFAULT)
    assert (first[0, 0], first[1, 1]) == (1, 0)
    assert (second[0, 0], second[1, 1]) == (0, 1)


def test_neighbours_count() -> None:
    """The control: the best label of each place alone is not the best labelling."""
    generator = np.random.default_rng(0)
    neighbours = Neighbours.grid(3, 3)
    unary, attraction = generator.normal(size=(1, 9, 3)), 3 * generator.random((1, 12))
    alone = unary.argmin(axis=2)
    best = minimise(unary, attraction, neighbours)
    assert (
        energy(best, unary, attraction, neighbours)[0] < energy(alone, unary, attraction, neighbours)[0] - 0.1
    )


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("cost", [0.0, 0.02, 0.8])
def test_moves_have_the_least_cost_of_all(seed: int, cost: float) -> None:
    mask = (saliency_of(2, 2, seed + 50) * 4).round().clamp(0, 2).double() / 2
    s = saliency_of(2, 2, seed)
    moves = best_moves(mask, s, cost)
    place = [(0, 0), (0, 1), (1, 0), (1, 1)]
    for i in range(2):

        def price(block_at: tuple[int, ...], i: int = i) -> float:
            total = 0.0
            for j, block in enumerate(block_at):
                distance = (place[j][0] - place[block][0]) ** 2 + (place[j][1] - place[block][1]) ** 2
                total += cost * distance - float(s[i].flatten()[block]) * float(mask[i].flatten()[j])
            return total

        assert sorted(moves[i]) == [0, 1, 2, 3]
        assert price(tuple(moves[i])) <= min(map(price, itertools.permutations(range(4)))) + 1e-9


def test_a_salient_block_moves_into_the_mask() -> None:
    mask = torch.tensor([[[0.0, 1.0], [0.0, 0.0]]]).double()
    s = torch.tensor([[[0.7, 0.1], [0.1, 0.1]]])
    assert best_moves(mask, s, 0.01).tolist() == [[1, 0, 2, 3]]
    assert best_moves(mask, s, 10.0).tolist() == [[0, 1, 2, 3]]  # too dear


def test_moved_blocks() -> None:
    x = torch.arange(16.0).view(1, 1, 4, 4)
    assert_same([moved(x, np.arange(4)[None], 2)], [x])
    turned = moved(x, np.array([[3, 1, 2, 0]]), 2)
    assert turned[0, 0].tolist() == [[10, 11, 2, 3], [14, 15, 6, 7], [8, 9, 0, 1], [12, 13, 4, 5]]


def test_saliency_is_the_share_of_the_gradients_length() -> None:
    gradient = torch.zeros(2, 2, 4, 4)
    gradient[0, :, 0, 0] = torch.tensor([3.0, 4.0])  # length 5
    gradient[0, 0, 3, 3] = -15.0
    found = block_saliency(gradient, 2)
    assert_close([found[0]], [torch.tensor([[0.25, 0.0], [0.0, 0.75]])], relative=1e-6)
    assert_same([found[1]], [torch.full((2, 2), 0.25)])  # no gradient: everywhere alike


def test_border_steps_equal_the_loop() -> None:
    one, other = images(1, 12, 1)[0], images(1, 12, 2)[0]
    for blocks, cell in ((2, 4), (3, 4), (6, 4), (2, 2)):
        found = border_steps(one[None], other[None], blocks, cell)[0]
        size = 12 // blocks
        used = max(divisor for divisor in range(1, cell + 1) if size % divisor == 0)
        neighbours = Neighbours.grid(blocks, blocks)
        for value, first, second in zip(found, neighbours.first, neighbours.second, strict=True):
            pair = divmod(int(first), blocks), divmod(int(second), blocks)
            assert float(value) == pytest.approx(step_over(one, other, *pair, size, used), abs=1e-6)


def test_neighbours_never_repel() -> None:
    """The worst pixels there are: black beside white, and the other way round in the partner."""
    x = torch.zeros(2, 1, 4, 4)
    x[0, :, :, :2], x[1, :, :, 2:] = 1, 1
    for gamma in (0.0, 0.5, 1.0):
        _, attraction, _ = energies(
            x, saliency_of(2, 2, 0), torch.tensor([1, 0]), 0.5, Objective(3, 1.2, gamma, 0.2, 4)
        )
        assert attraction.min() >= -1e-12


@pytest.mark.parametrize("transport", [True, False])
def test_a_step_equals_the_loop_over_pixels(transport: bool) -> None:
    y = torch.tensor([0, 1, 2, 1, 0])
    x = torch.rand(5, 3, 8, 8, generator=torch.Generator().manual_seed(4))
    method = nfm.scheme("puzzlemix", transport=transport, t_eps=0.05, seed=2)
    for step in range(4):
        net, twin = build(ConvNet), build(ConvNet)
        outcome = method(net, x, y, step=step)
        draw = outcome.draw
        twin.eval()
        point = x.clone().requires_grad_()
        F.cross_entropy(twin(point), y).backward()
        twin.train()
        twin.zero_grad()
        s = block_saliency(point.grad, method.grid_of(step, x.shape))
        drawn = float(sample_weights(1.0, 1.0, 1, method.key(step, "weight"), dominant=False)[0])
        expected = best_masks(x, s, draw.partner, drawn, method.objective)
        assert_close([draw.weight], [expected.mean((1, 2))], relative=1e-9)
        side = draw.mask.shape[1]
        size = 8 // side
        pictures = []
        for i, j in enumerate(draw.partner.tolist()):
            picture = torch.empty(3, 8, 8)
            for row, column in itertools.product(range(8), repeat=2):
                place = (row // size, column // size)
                flat_place = place[0] * side + place[1]
                values = []
                for image, moves in ((x[i], 0), (x[j], 1)):
                    block = flat_place if draw.moves is None else int(draw.moves[moves][i][flat_place])
                    top, left = divmod(block, side)
                    values.append(image[:, top * size + row % size, left * size + column % size])
                m = float(draw.mask[i][place])
                picture[:, row, column] = m * values[0] + (1 - m) * values[1]
            pictures.append(picture)
        output = twin(torch.stack(pictures))
        loss = output.new_zeros(())
        for i, j in enumerate(draw.partner.tolist()):
            share = float(draw.mask[i].mean())
            loss = (
                loss
                + share * F.cross_entropy(output[i], y[i])
                + (1 - share) * F.cross_entropy(output[i], y[j])
            )
        assert_close([outcome.output], [output], relative=1e-5)
        assert_close([outcome.loss], [loss / 5], relative=1e-5)
        assert_close([flat(gradients(outcome.loss, net))], [flat(gradients(loss / 5, twin))], relative=1e-4)
