"""The meter: Jacobian norms, regularisers, margins and eps_mix of a network as rows, once or while it trains."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from nfm.core.noise import Noise
from nfm.errors import UsageError
from nfm.results import Row, append_rows
from nfm.theory.adversarial_bound import mixing_radius
from nfm.theory.curvature_terms import curvature_terms, mean_curvature
from nfm.theory.derivatives import SiteMap, input_map, site_map
from nfm.theory.gradient_terms import gradient_terms
from nfm.theory.jacobian_norms import output_norms
from nfm.theory.losses import form_of, targets_of
from nfm.theory.moments import Estimate, NoiseMoments
from nfm.theory.nearest_error import nearest_error
from nfm.theory.soundness import check_sound

ROWS = "theory.jsonl"  # beside the rows of a run


@dataclass(frozen=True)
class Yardstick:
    """What is measured with: the same for every network that is compared, however each was trained.

    The default noise and alpha are the paper's (Section 5); `steps` are those of the attack on the margin, 0 for
    none; `probes` those of R3, which is 0 without any for a piecewise linear network.
    """

    noise: Noise = field(default_factory=lambda: Noise(0.4, 0.2))
    alpha: float = 1.0
    steps: int = 20
    probes: int = 4

    def tags(self) -> Row:
        """Return what rows must share to be compared."""
        return {"noise": repr(self.noise), "alpha": self.alpha}


def measure(
    model: nn.Module, x: Tensor, y: Tensor, *, sites: Sequence[str], with_: Yardstick | None = None
) -> list[Row]:
    """Return a row a site: means over the examples, terms of Theorem 1 at eps = 1 with their levels.

    `margin` is the median distance to an error, in units of the input; misclassified examples count as 0, and
    it is None where the attack found none for most.
    """
    if not sites:
        raise UsageError("sites: expected at least one, got none")
    how = with_ or Yardstick()
    network = input_map(model, x)
    margin = float(nearest_error(network, y, steps=how.steps).median()) if how.steps else math.inf
    targets = targets_of(y.to(network.outputs.device), network.outputs)
    wrong = 1 - float(_right(network.outputs, targets).double().mean())
    rows = []
    for site in sites:
        places = check_sound(site_map(model, x, site=site))
        radius = mixing_radius(model, x, y, sites=(site,), alpha=how.alpha)
        rows.append({
            "kind": "theory", "site": site, "n": len(x), **how.tags(), **_terms(places, y, how),
            "jacobian_norm": float(output_norms(places).mean()), "eps_mix": float(radius.mean()),
            "margin": margin if math.isfinite(margin) else None, "error": wrong,
        })  # fmt: skip
    return rows


def _right(outputs: Tensor, targets: Tensor) -> Tensor:
    if outputs.shape[1] == 1:
        return ((outputs > 0) == (targets > 0.5)).squeeze(1)
    return outputs.argmax(1) == targets.argmax(1)


def _terms(places: SiteMap, y: Tensor, how: Yardstick) -> Row:
    law = NoiseMoments.of(how.noise, places.features)
    terms = gradient_terms(places, y, noise=how.noise, alpha=how.alpha, beta=how.alpha)
    curvature = _curvature(places, y, how, law)
    noise = {"r2_add": law.add**2 * terms.r2_add, "r2_mult": law.mult**2 * terms.r2_mult}
    return {
        "loss": terms.standard, "r1": terms.r1, "r2": terms.r2, **noise,
        "r2_total": terms.r2 + sum(noise.values()), "r3_total": curvature.value, "r3_error": curvature.error,
    }  # fmt: skip


def _curvature(places: SiteMap, y: Tensor, how: Yardstick, law: NoiseMoments) -> Estimate:
    """Return R3~; one Hessian-vector product tells a piecewise linear network, which has none."""
    outputs = places.outputs
    slopes = form_of(outputs).slope(outputs, targets_of(y.to(outputs.device), outputs))
    if mean_curvature(places, slopes.abs(), places.features) == 0:
        return Estimate(0.0)
    terms = curvature_terms(places, y, noise=how.noise, alpha=how.alpha, beta=how.alpha, probes=how.probes)
    parts = [terms.r3, terms.r3_add.times(law.add**2), terms.r3_mult.times(law.mult**2)]
    return Estimate(sum(part.value for part in parts), sum(part.error**2 for part in parts) ** 0.5)


class Watcher(Protocol):
    """What a training loop tells of its steps (`nfm.train.progress.Progress`)."""

    def start(self, title: str, moment: Any) -> None: ...

    def step(self, moment: Any) -> None: ...

    def note(self, text: str) -> None: ...

    def stop(self) -> None: ...


@dataclass
class Meter:
    """Measure a network at the end of every few epochs of its training, and append rows to a file.

    It takes the place of the `progress` of `nfm.fit`, and passes all it is told on to another one. Training is
    not changed by a bit: nothing is drawn from a generator that it reads, and modes and gradients are put back.
    """

    model: nn.Module
    x: Tensor
    y: Tensor
    path: Path
    watcher: Watcher
    sites: Sequence[str]
    every: int = 1
    with_: Yardstick = field(default_factory=Yardstick)
    tags: Mapping[str, Any] = field(default_factory=dict)

    def start(self, title: str, moment: Any) -> None:
        """Measure the network before its first step."""
        self.watcher.start(title, moment)
        if moment.step == 0:
            self.path.unlink(missing_ok=True)  # rows of a run that was overwritten
            self._write(0)

    def step(self, moment: Any) -> None:
        """Measure at the end of an epoch."""
        self.watcher.step(moment)
        epoch, left = divmod(moment.step, max(1, moment.steps // moment.epochs))
        if left == 0 and (epoch % self.every == 0 or epoch == moment.epochs):
            self._write(epoch)

    def note(self, text: str) -> None:
        self.watcher.note(text)

    def stop(self) -> None:
        self.watcher.stop()

    def _write(self, epoch: int) -> None:
        with torch.enable_grad():
            rows = measure(self.model, self.x, self.y, sites=self.sites, with_=self.with_)
        append_rows(self.path, [{**self.tags, "epoch": epoch, **row} for row in rows])
