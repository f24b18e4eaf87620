"""Attacks and calibration agree with packages made for them (slow: skipped with a message without them)."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nfm.errors import EnvironmentProblem
from nfm.evaluate.apgd import APGD
from nfm.evaluate.calibration import expected_calibration_error
from nfm.evaluate.pgd import FGSM, PGD
from nfm.models.torchvision_compat import import_torchvision
from nfm.randomness import torch_generator

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
EPS = {"linf": 0.06, "l2": 0.7}


def package(name: str) -> Any:
    """Import an optional package; a broken torchvision in the environment breaks some of them."""
    with contextlib.suppress(EnvironmentProblem):
        import_torchvision("an oracle")
    try:
        return importlib.import_module(name)
    except (ImportError, RuntimeError) as error:
        return pytest.skip(f"{name} cannot be imported: {error}")


@pytest.fixture(scope="module")
def trained() -> tuple[nn.Module, Tensor, Tensor]:
    """Return a small convolutional network that was trained, its images and labels."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(
            nn.Conv2d(3, 16, 3),
            nn.ReLU(),
            nn.Conv2d(16, 16, 3, 2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(144, 4),
        )
    centres = 0.3 + 0.4 * torch.rand(4, 3, 9, 9, generator=torch_generator(0))
    y = torch.arange(512) % 4
    x = (centres[y] + 0.25 * torch.randn(512, 3, 9, 9, generator=torch_generator(1))).clamp(0, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    for _ in range(80):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    return model.eval().requires_grad_(False), x, y


def standing(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return model(x).argmax(1) == y


def ours(attack: Any, model: nn.Module, x: Tensor, y: Tensor, eps: float) -> Tensor:
    found = attack(model, x, y, torch.arange(len(y)), eps, seed=0)
    return standing(model, found, y)


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_fgsm_is_foolboxs_to_the_example(norm: str, trained: tuple[nn.Module, Tensor, Tensor]) -> None:
    foolbox = package("foolbox")
    model, x, y = trained
    attack = {"linf": foolbox.attacks.LinfFastGradientAttack, "l2": foolbox.attacks.L2FastGradientAttack}[
        norm
    ]
    wrapped = foolbox.PyTorchModel(model, bounds=(0, 1), device="cpu")
    _, _, broken = attack(random_start=False)(wrapped, x, y, epsilons=EPS[norm])
    assert torch.equal(ours(FGSM(norm), model, x, y, EPS[norm]), ~broken)
    assert not torch.equal(ours(FGSM(norm), model, x, y, EPS[norm] / 3), ~broken)


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_pgd_is_as_strong_as_foolboxs(norm: str, trained: tuple[nn.Module, Tensor, Tensor]) -> None:
    foolbox = package("foolbox")
    model, x, y = trained
    names = {"linf": "LinfProjectedGradientDescentAttack", "l2": "L2ProjectedGradientDescentAttack"}
    attack = getattr(foolbox.attacks, names[norm])(rel_stepsize=0.1, steps=40, random_start=False)
    wrapped = foolbox.PyTorchModel(model, bounds=(0, 1), device="cpu")
    _, _, broken = attack(wrapped, x, y, epsilons=EPS[norm])
    left = ours(PGD(norm, steps=40, step=0.1, random_start=False), model, x, y, EPS[norm])
    assert int((left != ~broken).sum()) <= 2  # ties in rounding
    assert 0.05 < left.float().mean() < 0.95
    assert int((ours(PGD(norm), model, x, y, EPS[norm] / 3) != ~broken).sum()) > 20


@pytest.mark.parametrize(("norm", "theirs"), [("linf", "Linf"), ("l2", "L2")])
def test_apgd_is_as_strong_as_the_published_one(
    norm: str, theirs: str, trained: tuple[nn.Module, Tensor, Tensor]
) -> None:
    build: Callable[..., Any] = package("pyautoattack").AutoAttack
    model, x, y = trained
    attack = build(model, norm=theirs, eps=EPS[norm], version="custom", attacks=["apgd-ce"], seed=0)
    found = attack.run_standard_evaluation(x, y, batch_size=len(y))
    left = int(standing(model, found[0] if isinstance(found, tuple) else found, y).sum())
    assert abs(int(ours(APGD(norm, steps=100), model, x, y, EPS[norm]).sum()) - left) <= 3
    assert int(ours(FGSM(norm), model, x, y, EPS[norm]).sum()) > left


def test_calibration_error_is_torchmetrics(trained: tuple[nn.Module, Tensor, Tensor]) -> None:
    classification = package("torchmetrics.functional.classification")
    model, x, y = trained
    shares = model(x + 0.3 * torch.randn(x.shape, generator=torch_generator(2))).softmax(1)
    confidence, predicted = shares.max(1)
    expected = float(
        classification.multiclass_calibration_error(shares, y, num_classes=4, n_bins=15, norm="l1")
    )
    assert expected_calibration_error(confidence, predicted == y) == pytest.approx(expected, abs=1e-6)
    assert expected_calibration_error(confidence.sqrt(), predicted == y) != pytest.approx(expected, abs=1e-3)
