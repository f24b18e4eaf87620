"""The figure of SM C: the NFM loss and its second-order approximation while a two-layer ReLU network trains."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from nfm.core.noise import Noise
from nfm.data import DataSet, ExampleSet, load
from nfm.errors import UsageError
from nfm.method.feature_mixup import NoisyFeatureMixup
from nfm.models import build
from nfm.results import Row
from nfm.theory.derivatives import site_map
from nfm.theory.gradient_terms import gradient_terms
from nfm.theory.moments import NoiseMoments
from nfm.theory.monte_carlo import training_loss

UNITS, RATE = 64, 0.1  # units are our choice; Adam at 0.1 is the paper's (SM, toy data)
SITES = ("input", "hidden1")


def taylor(
    *,
    epochs: int = 100,
    every: int = 5,
    noise: Noise | None = None,
    alpha: float = 1.0,
    sites: Sequence[str] = SITES,
    draws: int = 64,
    seed: int = 0,
) -> list[Row]:
    """Train on the toy circles with full batches and return a row every few epochs, for train and test.

    A row has epoch, part, standard (L_std), nfm_loss (mixed labels, eps = 1) with nfm_loss_error, and
    approximation (L_std + R1 + R2~; R3~ is 0 almost everywhere for ReLU), each the mean over the sites.
    """
    if epochs < 1 or every < 1:
        raise UsageError(f"epochs, every: expected 1 or more, got {epochs} and {every}")
    noise = Noise(0.1, 0.1) if noise is None else noise
    data = load("circles", seed=seed)
    model = build(
        "mlp", num_classes=2, in_channels=2, image_size=None, depth=2, units=UNITS, seed=seed
    ).double()
    rows: list[Row] = []
    for epoch in _training(model, data, noise, alpha, sites, epochs, seed):
        if epoch % every == 0 or epoch == epochs:
            for part, examples in (("train", data.train), ("test", data.test)):
                row = compare(
                    model, *_batch(examples), sites=sites, noise=noise, alpha=alpha, draws=draws, seed=seed
                )
                rows.append({"kind": "taylor", "epoch": epoch, "part": part, "seed": seed, **row})
    return rows


def compare(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    *,
    sites: Sequence[str],
    noise: Noise,
    alpha: float,
    draws: int,
    seed: int,
) -> Row:
    """Return the standard loss, the NFM loss and its approximation at eps = 1, each the mean over the sites."""
    losses, sums, standard = [], [], 0.0
    for site in sites:
        places = site_map(model, x, site=site)
        law = NoiseMoments.of(noise, places.features)
        terms = gradient_terms(places, y, noise=noise, alpha=alpha, beta=alpha)
        losses.append(training_loss(places, y, noise=noise, alpha=alpha, beta=alpha, draws=draws, seed=seed))
        standard = terms.standard
        sums.append(standard + terms.r1 + terms.r2 + law.add**2 * terms.r2_add + law.mult**2 * terms.r2_mult)
    return {
        "standard": standard, "nfm_loss": sum(loss.value for loss in losses) / len(sites),
        "nfm_loss_error": sum(loss.error**2 for loss in losses) ** 0.5 / len(sites),
        "approximation": sum(sums) / len(sites), "n": len(x), "draws": draws,
    }  # fmt: skip


def _training(
    model: nn.Module, data: DataSet, noise: Noise, alpha: float, sites: Sequence[str], epochs: int, seed: int
) -> Iterator[int]:
    """Yield 0, then the number of each epoch of NFM training after it was done."""
    method = NoisyFeatureMixup(sites=list(sites), alpha=alpha, noise=noise, seed=seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    x, y = _batch(data.train)
    yield 0
    for epoch in range(1, epochs + 1):
        model.train()
        optimizer.zero_grad()
        method(model, x, y).loss.backward()
        optimizer.step()
        yield epoch


def _batch(examples: ExampleSet) -> tuple[Tensor, Tensor]:
    rows = torch.arange(len(examples))
    return examples.fetch(rows).double(), examples.labels[rows]
