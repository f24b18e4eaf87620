"""The classification margin (SM D): the score, lower bounds of the margin, and an attack from above."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from nfm.errors import UsageError, did_you_mean
from nfm.method.sites import resolve
from nfm.theory.derivatives import input_map, site_map
from nfm.theory.jacobian_norms import feature_norms, output_norms
from nfm.theory.lipschitz import LipschitzBounds, lipschitz
from nfm.theory.losses import targets_of
from nfm.theory.nearest_error import nearest_error
from nfm.theory.soundness import check_sound

Form = Literal["right", "printed"]
FACTORS: dict[str, float] = {"right": 1 / math.sqrt(2), "printed": math.sqrt(2)}


@dataclass(frozen=True, eq=False)
class Margins:
    """Margins of n examples, in l2 units of the network's own input (pixels).

    `rigorous` holds for every input: score / (bound of ||grad_k f|| * bound of ||grad g_k||). `empirical` puts the
    greatest norms seen on these examples in: it is an estimate, and may exceed the margin. `printed` is the
    rigorous one with the printed score: twice too large. `attack` is the distance of an error that was found.
    A network of parts without a known norm has no `rigorous`, `printed` and `bounds`; `why` names the part.
    """

    score: Tensor
    rigorous: Tensor | None
    printed: Tensor | None
    empirical: Tensor
    attack: Tensor
    bounds: LipschitzBounds | None
    output_norm: Tensor  # ||grad_k f(g_k(x_i))||_2
    feature_norm: Tensor  # ||grad g_k(x_i)||_2, from below
    why: str = ""

    def __str__(self) -> str:
        named = {name: getattr(self, name) for name in ("rigorous", "printed", "empirical", "attack")}
        medians = ", ".join(
            f"{name} {float(value.median()):.3g}" for name, value in named.items() if value is not None
        )
        return f"n = {len(self.score)}, medians: {medians}" + (f" ({self.why})" if self.why else "")


def score(outputs: Tensor, y: Tensor, *, form: Form = "right") -> Tensor:
    """Return min_j (e_c - e_j)^T f / sqrt(2) [n] for outputs [n, K]; the paper prints * sqrt(2).

    The distance of f to the boundary of class c in the space of outputs is the right one. One output f means
    the two outputs -f/2 and f/2.

    >>> score(torch.tensor([[1.0, -1.0]]), torch.tensor([0]))
    tensor([1.4142])
    """
    if form not in FACTORS:
        raise UsageError(f"form: expected {' or '.join(FACTORS)}, got {form!r}{did_you_mean(form, FACTORS)}")
    targets = targets_of(y.to(outputs.device), outputs)
    if outputs.shape[1] == 1:
        return FACTORS[form] * ((2 * targets - 1) * outputs).squeeze(1)
    own = (targets * outputs).sum(1)
    return FACTORS[form] * (own - outputs.masked_fill(targets.bool(), -torch.inf).amax(1))


def margins(model: nn.Module, x: Tensor, y: Tensor, *, site: str = "input", steps: int = 50) -> Margins:
    """Return every bound of the margins of `x` [n, ...] with labels `y`, through the Jacobians at `site`.

    Where a part of the network has no known norm, there is no rigorous one, and the result says why.
    """
    places, network = check_sound(site_map(model, x, site=site)), input_map(model, x)
    single = 1 / math.sqrt(2) if places.outputs.shape[1] == 1 else 1.0  # of (-f/2, f/2)
    right = score(network.outputs, y).double().clamp_min(0)
    bounds, why = _bounds(model, x, site)
    rigorous = right / (single * _whole(bounds)) if bounds else None
    behind, before = single * output_norms(places), feature_norms(model, x, site=site)
    return Margins(
        score=right, rigorous=rigorous,
        printed=None if rigorous is None else FACTORS["printed"] / FACTORS["right"] * rigorous,
        empirical=right / (behind.max() * before.max()), attack=nearest_error(network, y, steps=steps),
        bounds=bounds, output_norm=behind, feature_norm=before, why=why,
    )  # fmt: skip


def _bounds(model: nn.Module, x: Tensor, site: str) -> tuple[LipschitzBounds | None, str]:
    """Return the bounds of the layers, or None and why there are none."""
    (place,) = resolve(model, (site,)).values()
    try:
        return lipschitz(model, x, site=place.module), ""
    except UsageError as error:
        return None, str(error)


def _whole(bounds: LipschitzBounds) -> float:
    return bounds.whole if bounds.bypassed else min(bounds.whole, bounds.before * bounds.after)
