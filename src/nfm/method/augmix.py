"""AugMix (Hendrycks et al. 2020): two augmented views of each image, and predictions that agree on all three."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import nn

from nfm.core.draw import Draw
from nfm.core.mixing import Criterion
from nfm.method.chains import Chains
from nfm.method.consistency import check_factor, jensen_shannon, split_views
from nfm.method.dry_run import Plan
from nfm.method.feature_mixup import Outcome
from nfm.method.pixels import check_pixels
from nfm.method.roots import forward_plain
from nfm.method.scheme import Scheme
from nfm.method.sites import INPUT

VIEWS = 2


class AugMix(Scheme):
    """Train on clean images with the loss criterion + jsd * JS(clean, view 1, view 2) (their equation 1).

    The three views go through the network as one batch, so batch norm sees them together. `jsd=0` is AugMix
    without the consistency loss: one view, and the criterion on it. Images are [n, channels, height, width] in
    [0, 1]; the other settings are those of `Chains`.
    """

    def __init__(
        self,
        jsd: float = 12.0,  # lambda = 12, Section 4
        severity: float = 3.0,
        width: int = 3,
        depth: int | None = None,
        alpha: float = 1.0,
        *,
        seed: int = 0,
    ) -> None:
        super().__init__(seed)
        self.jsd = check_factor(jsd)
        self.chains = Chains(severity, width, depth, alpha)

    def __repr__(self) -> str:
        return f"AugMix(jsd={self.jsd:g}, {self.chains!r}, seed={self.seed})"

    def train(
        self, model: nn.Module, x: Any, y: Any, *, criterion: Criterion, step: int, draw: Draw | None
    ) -> Outcome:
        """Make the views of `step` and return the loss on them."""
        x = check_pixels(x, "augmix")
        made = dataclasses.replace(Draw.plain(len(x)), site=INPUT, step=step)
        views = self.chains.views(x, VIEWS if self.jsd else 1, self.key(step, "augmix"))
        if not self.jsd:
            output = forward_plain(model, views[0])
            return Outcome(criterion(output, y), output, made)
        clean, *others = split_views(forward_plain(model, torch.cat([x, *views])), 1 + VIEWS, len(x))
        loss = criterion(clean, y) + self.jsd * jensen_shannon(clean, *others)
        return Outcome(loss, clean, made)

    def check(self, model: nn.Module, x: Any) -> Plan:
        """Refuse what are no images in [0, 1]."""
        check_pixels(x, "augmix")
        return super().check(model, x)
