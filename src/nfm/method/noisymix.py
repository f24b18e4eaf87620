"""NoisyMix (Erichson et al. 2022, by authors of NFM): NFM on three views of a batch that must agree."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence
from typing import Any, Self

import torch
from torch import Tensor, nn

from nfm.core.draw import Choice, Draw
from nfm.core.mixing import Criterion, mixed_loss
from nfm.core.noise import Noise
from nfm.method.augmix import VIEWS
from nfm.method.chains import Chains
from nfm.method.consistency import check_factor, jensen_shannon, split_views
from nfm.method.dry_run import Plan
from nfm.method.feature_mixup import NoisyFeatureMixup, Outcome
from nfm.method.pixels import check_pixels
from nfm.method.roots import forward_mixed, root_of
from nfm.method.scheme import Scheme

# Their levels .5 and .5, law and scale law those of NFM's tables, 65% of the noise 0 (docs/differences.md, row 20).
NOISYMIX_NOISE = dataclasses.replace(Noise.authors(0.5, 0.5), sparsity=0.65)


class ViewsChoice(Choice):
    """The choices for a batch of views, one view after another: each acts on its own part of the batch."""

    def __init__(self, parts: Sequence[Choice]) -> None:
        first = parts[0]
        self.parts = tuple(parts)
        self.site, self.step, self.forced, self.view = first.site, first.step, first.forced, first.view
        self.arguments = first.arguments

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Give a copy the copies of the parts."""
        self.__init__(state["parts"])  # type: ignore[misc]

    def ready(self) -> Self:
        """Make the tensors of the parts; return the choice."""
        for part in self.parts:
            part.ready()
        return self

    @property
    def uses(self) -> int:
        """Return how many forward passes this choice met."""
        return max(part.uses for part in self.parts)

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of the feature that this choice met, all views together."""
        shapes = [part.shape for part in self.parts]
        return (sum(shape[0] for shape in shapes), *shapes[0][1:]) if all(shapes) else ()

    def again(
        self, *, forced: bool = False, view: int | None = None, noise: Noise | None = None
    ) -> ViewsChoice:
        """Return the same choice for another forward pass; each part keeps its view and noise."""
        return ViewsChoice([part.again(forced=forced) for part in self.parts])

    def apply(self, x: Tensor, stream: int = 0) -> Tensor:
        """Return `x` with each view mixed and perturbed by its own part."""
        views = x.chunk(len(self.parts))
        return torch.cat([part.apply(view, stream) for part, view in zip(self.parts, views, strict=True)])

    def draw(self, size: int) -> Draw:
        """Return what this choice means for the `size` examples of one view."""
        return dataclasses.replace(self.parts[0].draw(size), choice=self)


class NoisyMix(Scheme):
    """Train by NFM on the clean batch and two AugMix views, all mixed alike, with predictions that agree.

    loss = NFM's on the clean view + jsd * JS(clean, view 1, view 2). Partner, weight and site are shared; each view
    has noise of its own, with once, twice and three times the additive level. Batch norm sees the views together.
    Images are [n, channels, height, width] in [0, 1].
    """

    def __init__(
        self,
        sites: Sequence[str] | str | None = None,
        alpha: float = 1.0,
        beta: float | None = None,
        noise: Noise = NOISYMIX_NOISE,
        jsd: float = 12.0,  # as AugMix's (docs/differences.md, row 20)
        severity: float = 3.0,
        width: int = 3,
        depth: int | None = None,
        *,
        seed: int = 0,
    ) -> None:
        super().__init__(seed)
        self.mixing = NoisyFeatureMixup(sites, alpha, beta, noise, seed=seed)
        self.chains = Chains(severity, width, depth)
        self.jsd = check_factor(jsd)

    def __repr__(self) -> str:
        return f"NoisyMix(jsd={self.jsd:g}, {self.chains!r}, {self.mixing!r}, seed={self.seed})"

    @property
    def noise(self) -> Noise:
        """The noise of the clean view."""
        return self.mixing.noise

    @property
    def parts(self) -> tuple[NoisyFeatureMixup, ...]:
        """The method that acts at the sites."""
        return (self.mixing,)

    def scaled(self, factor: float) -> NoisyMix:
        """Return the same scheme with the noise levels times `factor`."""
        other = copy.copy(self)
        other.mixing = self.mixing.scaled(factor)
        return other

    def choose(self, model: nn.Module, step: int) -> ViewsChoice:
        """Make the choice of `step`: one for each view, with the same site, partners and weight."""
        first = self.mixing.choose(tuple(self.mixing.sites_of(model)), step)
        noises = [
            dataclasses.replace(self.noise, add=times * self.noise.add) for times in range(1, VIEWS + 2)
        ]
        return ViewsChoice([first.again(view=view, noise=noise) for view, noise in enumerate(noises)])

    def train(
        self, model: nn.Module, x: Any, y: Any, *, criterion: Criterion, step: int, draw: Draw | None
    ) -> Outcome:
        """Make the views of `step`, mix them alike, and return the loss on them."""
        x = check_pixels(x, "noisymix")
        root = root_of(model)
        replayed = None if draw is None else draw.choice
        choice = self.choose(root, step) if replayed is None else replayed.again(forced=True)
        views = torch.cat([x, *self.chains.views(x, VIEWS, self.key(step, "noisymix"))])
        site = self.mixing.sites_of(root)[choice.site]
        output = forward_mixed(model, root, (views,), {}, choice, site, batch=len(views))
        clean, *others = split_views(output, 1 + VIEWS, len(x))
        made = choice.draw(len(x))
        loss = mixed_loss(criterion, clean, y, made.pairing) + self.jsd * jensen_shannon(clean, *others)
        return Outcome(loss, clean, made)

    def check(self, model: nn.Module, x: Any) -> Plan:
        """Refuse what are no images in [0, 1], and bad sites; return the plan of the sites."""
        check_pixels(x, "noisymix")
        return self.mixing.check(model, x)
