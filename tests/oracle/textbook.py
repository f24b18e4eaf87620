"""The method written out example by example, as a textbook would: slow, plain, and on its own.

Only the random values (partner, weights, noise) are taken from the draw; nothing else of the package is used.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

import nfm
from nets import Mlp
from nfm.core.operator import noise_of
from nfm.randomness import fold


@dataclass(frozen=True)
class Values:
    """The random values of one step: a weight and a partner for each example, and the noise or None."""

    site: str
    weights: list[float]
    partners: list[int]
    add: Tensor | None
    mult: Tensor | None

    def without(self, ingredient: str) -> Values:
        """Return the values with one ingredient broken, for negative controls."""
        size = len(self.weights)
        broken = {
            "site": {"site": "input" if self.site != "input" else "stem"},
            "weights": {"weights": [0.5 * weight for weight in self.weights]},
            "partners": {"partners": self.partners[1:] + self.partners[:1] if size > 1 else [0]},
            "add": {"add": None},
            "mult": {"mult": None},
        }
        return replace(self, **broken[ingredient])


def values_of(draw: nfm.Draw, h: Tensor, stream: int = 0) -> Values:
    """Return the values of `draw` for features like `h`."""
    weights, partners = draw.weight.expand(len(h)).tolist(), draw.partner.tolist()
    if draw.choice is None:  # a plain step
        return Values(draw.site, weights, partners, None, None)
    noise, drawn = draw.choice.noise, draw.choice.arguments
    numbers, keys = drawn.numbers, drawn.keys
    add, mult = noise_of(
        h, numbers, fold(keys.noise, stream), add_law=noise.add_law, mult_law=noise.mult_law,
        granularity=noise.granularity, sparsity=noise.sparsity,
    )  # fmt: skip
    return Values(draw.site, weights, partners, add, mult)


def noisy_mixture(h: Tensor, values: Values) -> Tensor:
    """Return (1 + mult) * (weight * h_i + (1 - weight) * h_j) + add for each example i and partner j."""
    rows = []
    for i, (weight, j) in enumerate(zip(values.weights, values.partners, strict=True)):
        row = weight * h[i] + (1 - weight) * h[j]
        if values.mult is not None:
            row = (1 + values.mult[i]) * row
        if values.add is not None:
            row = row + values.add[i]
        rows.append(row)
    return torch.stack(rows)


def cross_entropy(logits: Tensor, label: int) -> Tensor:
    """Return -log softmax(logits)[label] of one example."""
    return torch.log(torch.exp(logits).sum()) - logits[label]


def mixed_cross_entropy(output: Tensor, labels: list[int], values: Values) -> Tensor:
    """Return the mean over examples of weight * CE(y_i) + (1 - weight) * CE(y_j)."""
    total = output.new_zeros(())
    for i, (weight, j) in enumerate(zip(values.weights, values.partners, strict=True)):
        own, other = cross_entropy(output[i], labels[i]), cross_entropy(output[i], labels[j])
        total = total + weight * own + (1 - weight) * other
    return total / len(labels)


def stages(net: Mlp) -> list[tuple[str, object]]:
    return [("input", lambda x: x), ("stem", net.stem), ("first", net.first), ("second", net.second)]


def features_at(net: Mlp, x: Tensor, site: str) -> Tensor:
    """Return the features that reach `site`."""
    h = x
    for name, stage in stages(net):
        h = stage(h)
        if name == site:
            return h
    raise KeyError(site)


def step(net: Mlp, x: Tensor, y: Tensor, values: Values) -> tuple[Tensor, Tensor]:
    """Return the output and the loss of one training step."""
    h = x
    for name, stage in stages(net):
        h = stage(h)
        if name == values.site:
            h = noisy_mixture(h, values)
    output = net.head(h)
    return output, mixed_cross_entropy(output, y.tolist(), values)
