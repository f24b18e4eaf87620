"""CutMix against a loop over pixels, and the area of a box against its closed form."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import nfm
from comparing import assert_close, assert_different, assert_same, flat, gradients
from nets import ConvNet, batch, build
from nfm.core.box import Box, boxes_of, mask_of, place_box


def pasted(h: Tensor, partner: list[int], boxes: tuple[Box, ...]) -> tuple[Tensor, list[float]]:
    """Return the images, pixel by pixel, and the share of each that is still its own."""
    rows, shares = [], []
    for i, j in enumerate(partner):
        box = boxes[i if len(boxes) > 1 else 0]
        image, own = h[i].clone(), 0
        for row in range(h.shape[2]):
            for column in range(h.shape[3]):
                inside = box.top <= row < box.bottom and box.left <= column < box.right
                own += not inside
                if inside:
                    image[:, row, column] = h[j][:, row, column]
        rows.append(image)
        shares.append(own / (h.shape[2] * h.shape[3]))
    return torch.stack(rows), shares


def run_by_hand(net: ConvNet, x: Tensor, y: Tensor, outcome: nfm.Outcome) -> tuple[Tensor, Tensor]:
    """Return output and loss of the same step, written out."""
    choice = outcome.draw.choice
    h = net.first(x) if outcome.draw.site == "first" else x
    drawn = choice.arguments
    _, boxes = boxes_of(drawn, h.shape, per_sample=choice.per_sample)
    h, shares = pasted(h, outcome.draw.partner.tolist(), boxes)
    h = h if outcome.draw.site == "first" else net.first(h)
    output = net.head(net.second(h).mean((2, 3)))
    loss = output.new_zeros(())
    for i, share in enumerate(shares):
        j = int(outcome.draw.partner[i])
        loss = (
            loss + share * F.cross_entropy(output[i], y[i]) + (1 - share) * F.cross_entropy(output[i], y[j])
        )
    return output, loss / len(x)


@pytest.mark.parametrize("site", ["input", "first"])
@pytest.mark.parametrize("weights", ["batch", "sample"])
def test_a_step_equals_the_loop(weights: str, site: str) -> None:
    x, y = batch(5, 3, 6, 7)
    method = nfm.scheme("cutmix", weights=weights, sites=site, seed=2)
    for step in range(6):
        net, twin = build(ConvNet), build(ConvNet)
        outcome = method(net, x, y, step=step)
        output, loss = run_by_hand(twin, x, y, outcome)
        assert_same([outcome.output], [output])
        assert_close([outcome.loss], [loss], relative=1e-6)
        found, expected = (
            flat(gradients(made, model)) for made, model in ((outcome.loss, net), (loss, twin))
        )
        assert_close([found], [expected], relative=1e-5)


def test_the_loop_sees_a_weight_that_is_not_the_pasted_area() -> None:
    """The control: with the weight that was drawn, before the border cut the box, the losses differ."""
    x, y = batch(5, 3, 6, 7)
    method = nfm.scheme("cutmix", seed=2)
    differ = 0
    for step in range(6):
        outcome = method(build(ConvNet), x, y, step=step)
        _, loss = run_by_hand(build(ConvNet), x, y, outcome)
        drawn = outcome.draw.choice.arguments.numbers.weight
        other = drawn * F.cross_entropy(outcome.output, y)
        other = other + (1 - drawn) * F.cross_entropy(outcome.output, y[outcome.draw.partner])
        differ += float((other - loss).detach().abs()) > 1e-3
    assert differ >= 3


@given(
    weight=st.floats(0, 1), row=st.floats(0, 1), column=st.floats(0, 1),
    height=st.integers(1, 40), width=st.integers(1, 40),
)  # fmt: skip
def test_a_box_is_inside_and_its_mask_has_its_area(
    weight: float, row: float, column: float, height: int, width: int
) -> None:
    box = place_box(weight, (row, column), height, width)
    assert 0 <= box.top <= box.bottom <= height
    assert 0 <= box.left <= box.right <= width
    assert int(mask_of([box], height, width).sum()) == box.area
    side = math.sqrt(1 - weight)
    lengths = (
        min(1, row + side / 2) - max(0, row - side / 2),
        min(1, column + side / 2) - max(0, column - side / 2),
    )
    assert abs(box.bottom - box.top - height * lengths[0]) <= 1  # half a pixel an edge
    assert abs(box.right - box.left - width * lengths[1]) <= 1


@pytest.mark.parametrize("weight", [0.0, 0.19, 0.64, 0.99, 1.0])
def test_the_mean_area_has_its_closed_form(weight: float) -> None:
    """With a uniform centre the border cuts s**2 / 4 of a side s, so the mean area is (s - s**2 / 4)**2."""
    count, size = 40_000, 1000
    centres = np.random.default_rng(0).random((count, 2)).tolist()
    area = np.array([place_box(weight, centre, size, size).area for centre in centres]) / size**2
    side = math.sqrt(1 - weight)
    assert (
        abs(float(area.mean()) - (side - side**2 / 4) ** 2) <= 5 * float(area.std()) / math.sqrt(count) + 1e-9
    )


def test_a_box_that_fits_is_not_cut() -> None:
    middle, corner = (0.5, 0.5), (0.0, 0.0)
    assert place_box(0.75, middle, 8, 8).area == 16
    assert place_box(1.0, middle, 8, 8).area == 0
    assert place_box(0.0, middle, 8, 8).area == 64
    assert place_box(0.75, corner, 8, 8).area == 4


def test_steps_differ_in_box_and_partner() -> None:
    x, y = batch(5, 3, 6, 7)
    method = nfm.scheme("cutmix", seed=2)
    one, other = (method(build(ConvNet), x, y, step=step) for step in (0, 1))
    assert_different([one.draw.weight], [other.draw.weight])
