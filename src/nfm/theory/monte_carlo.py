"""The NFM loss by sampling: that of the auxiliary lemma at any eps, and the training loss with mixed labels."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from nfm.core.draw import Choice
from nfm.core.noise import Noise
from nfm.core.weights import sample_weights
from nfm.errors import UsageError
from nfm.randomness import fold, torch_generator
from nfm.theory.derivatives import SiteMap
from nfm.theory.losses import LossForm, form_of, targets_of
from nfm.theory.mixture import WeightMixture
from nfm.theory.moments import Estimate
from nfm.theory.vicinal import Perturbation, label_perturbation, noise_values, perturbation


@dataclass(frozen=True)
class SampledLoss:
    """The loss of the auxiliary lemma at eps, and what its second-order expansion leaves.

    The remainder is sampled with the draws of the loss, each minus its own first- and second-order terms:
    its error is of third order in eps, as it is itself.
    """

    loss: Estimate
    remainder: Estimate
    draws: int


def auxiliary_loss(
    site_map: SiteMap, y: Tensor, *, noise: Noise, alpha: float, beta: float, eps: float = 1.0, draws: int = 32,
    seed: int = 0,
) -> Estimate:  # fmt: skip
    """Return the loss with the example's own label, a weight from D~ and features z + eps e_NFM."""
    form, targets = _loss_of(site_map, y, draws)
    found = []
    for shift in own_label_draws(
        site_map.features, noise=noise, alpha=alpha, beta=beta, draws=draws, seed=seed
    ):
        found.append(float(form.value(_outputs(site_map, eps * shift.total(eps)), targets).mean()))
    return _mean(found)


def training_loss(
    site_map: SiteMap, y: Tensor, *, noise: Noise, alpha: float, beta: float, draws: int = 32, seed: int = 0
) -> Estimate:
    """Return the loss NFM trains with: a weight from Beta(alpha, beta), labels mixed alike."""
    form, targets = _loss_of(site_map, y, draws)
    z, found = site_map.features, []
    for turn in range(draws):
        key = fold(seed, "training loss", turn)
        partner = _partners(len(z), key)
        weight = torch.from_numpy(sample_weights(alpha, beta, len(z), fold(key, "weight"), dominant=False))
        shift = _perturbed(z, partner, weight, noise, key)
        mixed = targets + label_perturbation(targets, partner, weight)
        found.append(float(form.value(_outputs(site_map, shift.total()), mixed).mean()))
    return _mean(found)


def sampled_loss(
    site_map: SiteMap, y: Tensor, *, noise: Noise, alpha: float, beta: float, eps: float, draws: int = 32,
    seed: int = 0,
) -> SampledLoss:  # fmt: skip
    """Return the loss of the auxiliary lemma at `eps` and the remainder of its expansion."""
    form, targets = _loss_of(site_map, y, draws)
    losses, rests, most = [], [], site_map.batch
    for shift in own_label_draws(
        site_map.features, noise=noise, alpha=alpha, beta=beta, draws=draws, seed=seed
    ):
        rows = torch.cat([
            _with_remainder(part, part_shift, target, form, eps)
            for part, part_shift, target in zip(
                site_map.chunks(most), _split(shift, most), targets.split(most), strict=True
            )
        ])  # fmt: skip
        loss, rest = rows.mean(0).tolist()
        losses.append(loss)
        rests.append(rest)
    return SampledLoss(_mean(losses), _mean(rests), draws)


def own_label_draws(
    z: Tensor, *, noise: Noise, alpha: float, beta: float, draws: int, seed: int
) -> Iterator[Perturbation]:
    """Yield e_NFM of the auxiliary lemma: for each example a partner of all, a weight of D~, a noise."""
    mixture = WeightMixture(alpha, beta)
    for turn in range(draws):
        key = fold(seed, "auxiliary loss", turn)
        weight = mixture.sample(len(z), fold(key, "weight"))
        yield _perturbed(z, _partners(len(z), key), weight, noise, key)


def _perturbed(z: Tensor, partner: Tensor, weight: Tensor, noise: Noise, key: int) -> Perturbation:
    choice = Choice(
        "theory",
        key=fold(key, "noise"),
        step=0,
        alpha=0.0,
        beta=0.0,
        per_sample=False,
        dominant=False,
        noise=noise,
    )
    add, mult = noise_values(z, choice)
    return perturbation(z, partner.to(z.device), weight.to(z.device), add=add, mult=mult)


def _partners(count: int, key: int) -> Tensor:
    """Return a partner for each example, drawn from all: D_x, not a permutation."""
    return torch.randint(count, (count,), generator=torch_generator(fold(key, "partner")))


def _outputs(site_map: SiteMap, shift: Tensor) -> Tensor:
    return torch.cat([
        part(part.features + moved).detach()
        for part, moved in zip(site_map.chunks(site_map.batch), shift.split(site_map.batch), strict=True)
    ])  # fmt: skip


def _with_remainder(part: SiteMap, shift: Perturbation, y: Tensor, form: LossForm, eps: float) -> Tensor:
    """Return [c, 2]: psi(eps), and psi(eps) - psi(0) - eps psi'(0) - eps^2/2 psi''(0)."""
    z, first, slope = part.outputs, shift.first, form.slope(part.outputs, y)
    along = part.push(first)
    once = (slope * along).sum(1)
    twice = (
        form.bend(z, along[:, :, None]).squeeze(1)
        + part.curvature(slope, first)
        # The second derivative of z + eps e_0 + eps^2 e_1 in eps is 2 e_1: of mean zero, but in every draw.
        + 2 * (slope * part.push(shift.cross)).sum(1)
    )
    loss = form.value(part(part.features + eps * shift.total(eps)).detach(), y)
    rest = loss - form.value(z, y) - eps * once - eps**2 / 2 * twice
    return torch.stack([loss, rest], 1).double()


def _split(shift: Perturbation, most: int) -> Iterator[Perturbation]:
    for mixup, noise, cross in zip(
        shift.mixup.split(most), shift.noise.split(most), shift.cross.split(most), strict=True
    ):
        yield Perturbation(mixup, noise, cross)


def _loss_of(site_map: SiteMap, y: Tensor, draws: int) -> tuple[LossForm, Tensor]:
    if draws < 2:
        raise UsageError(f"draws: expected 2 or more (their spread is the standard error), got {draws}")
    return form_of(site_map.outputs), targets_of(y.to(site_map.outputs.device), site_map.outputs)


def _mean(found: list[float]) -> Estimate:
    values = torch.tensor(found, dtype=torch.float64)
    return Estimate(float(values.mean()), float(values.std()) / math.sqrt(len(values)))
