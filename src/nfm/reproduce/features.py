"""Features to look at: images that a pre-logit activation likes best, by projected gradient ascent.

The paper's numbers (supplement, "Feature Visualization Comparison"): 200 steps of 16, l2 norm at most 2,000. Its
unit is 0-255 levels: in [0, 1] the whole cube of 224x224 pixels has a radius below 400, and the bound would never bind.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from statistics import fmean

import numpy as np
import torch
from torch import Tensor, nn

from nfm.models import find_head
from nfm.randomness import fold, numpy_generator
from nfm.report.png import encode_png
from nfm.reproduce.measuring import MEASURES, Trained
from nfm.reproduce.statistics import DIGITS
from nfm.reproduce.study import Line, Measure
from nfm.reproduce.summaries import SUMMARIES
from nfm.results import Row

STEPS, STEP, BALL = (
    200,
    16.0,
    2000.0,
)  # the paper, supplement, "Feature Visualization Comparison"; 0-255 levels
PAPER_SIDE = 224
SHOWN = 4  # activations a network, chosen at random among those awake
LEVELS = 255.0


@MEASURES.register("features")
def measure_features(trained: Trained, measure: Measure) -> list[Row]:
    """Return a row for each chosen activation: what it was on the start, what it became, and the image."""
    model, (channels, *size) = trained.model, trained.data.shape
    start = torch.full((SHOWN, channels, *size), 0.5) + 0.01 * torch.from_numpy(
        numpy_generator(fold(0, "features", "start")).standard_normal((SHOWN, channels, *size))
    )
    device = next(model.parameters()).device
    start = start.float().clamp(0, 1).to(device)
    units = choose_units(model, start)
    # The paper's ball is for 224 pixels a side: smaller images have one of the same size in each pixel.
    scale = math.sqrt(size[0] * size[1]) / PAPER_SIDE
    images, before, after = climb(model, start, units, ball=scale * BALL / LEVELS, step=scale * STEP / LEVELS)
    return [
        {
            "kind": "feature", "place": place, "unit": int(unit), "before": float(before[place]),
            "after": float(after[place]), "norm_255": float(LEVELS * (images[place] - start[place]).norm()),
            "steps": STEPS, "n": SHOWN, "png": _png(images[place]),
        }
        for place, unit in enumerate(units)
    ]  # fmt: skip


def choose_units(model: nn.Module, start: Tensor) -> Tensor:
    """Return as many pre-logit activations as there are images, at random among those that none of `start` leaves at 0.

    Behind a ReLU, those at 0 have no slope to climb; they are taken only where there are no others.
    """
    with torch.no_grad(), pre_logits(model) as held:
        model(start)
        awake = (held[0] != 0).all(dim=0).cpu().numpy()
    order = numpy_generator(fold(0, "features", "units")).permutation(len(awake))
    return torch.from_numpy(np.concatenate([order[awake[order]], order[~awake[order]]])[: len(start)]).to(
        start.device
    )


def climb(
    model: nn.Module, start: Tensor, units: Tensor, *, ball: float, step: float, steps: int = STEPS
) -> tuple[Tensor, Tensor, Tensor]:
    """Return images near `start` (n, C, H, W) that make the pre-logit `units` (n,) large; their values before, after.

    Each step goes `step` along the gradient's direction, then back into the l2 ball and into [0, 1].
    """
    x = start.clone()
    with pre_logits(model) as held:
        before = _activations(model, x, units, held).detach()
        for _ in range(steps):
            x.requires_grad_(True)
            (slope,) = torch.autograd.grad(_activations(model, x, units, held).sum(), x)
            length = slope.flatten(1).norm(dim=1).clamp_min(1e-12).view(-1, 1, 1, 1)
            x = project(x.detach() + step * slope / length, start, ball)
        return x, before, _activations(model, x, units, held).detach()


def project(x: Tensor, centre: Tensor, ball: float) -> Tensor:
    """Return `x` moved into the l2 ball around `centre`, then into [0, 1]; both are convex and hold `centre`."""
    shift = x - centre
    length = shift.flatten(1).norm(dim=1).view(-1, 1, 1, 1)
    return (centre + shift * (ball / length.clamp_min(ball))).clamp(0, 1)


@contextmanager
def pre_logits(model: nn.Module) -> Iterator[list[Tensor]]:
    """Give a list that holds the input of the head, as (n, features), after each forward pass."""
    held: list[Tensor] = []

    def hold(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        held[:] = [inputs[0].flatten(1)]

    handle = model.get_submodule(find_head(model)).register_forward_pre_hook(hold)
    try:
        yield held
    finally:
        handle.remove()


def _activations(model: nn.Module, x: Tensor, units: Tensor, held: list[Tensor]) -> Tensor:
    model(x)
    return held[0].gather(1, units[:, None])[:, 0]


def _png(image: Tensor) -> str:
    pixels = (LEVELS * image).round().to(torch.uint8).permute(1, 2, 0).cpu().numpy()
    return base64.b64encode(encode_png(np.ascontiguousarray(pixels))).decode()


@SUMMARIES.register("features")
def summarise_features(lines: Sequence[Line], rows: Sequence[Row]) -> Row:
    """Return how much each network's activations grew."""
    shown = [line.arm for line in lines if any(row["arm"] == line.arm.name for row in rows)]
    return {"kind": "features", "lines": [_summary(arm.name, arm.title, rows) for arm in shown]}


def _summary(name: str, label: str, rows: Sequence[Row]) -> Row:
    own = [row for row in rows if row["arm"] == name]
    means = {what: round(fmean(row[what] for row in own), DIGITS) for what in ("before", "after", "norm_255")}
    return {"arm": name, "label": label, "units": len(own), **means}
