"""Attacks: closed forms on linear models, bounds, judges, keyed randomness, and who beats whom."""

import math
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nfm.core.norms import NORMS
from nfm.errors import NumericalError, ShapeError, UsageError
from nfm.evaluate.apgd import APGD, checkpoints
from nfm.evaluate.attack import Attack, gradient_faults, parse_eps
from nfm.evaluate.attacks import ATTACKS, Strong, attack_suite
from nfm.evaluate.checks import Classifier
from nfm.evaluate.losses import difference_of_logits_ratio, margin, targeted_ratio
from nfm.evaluate.pgd import FGSM, PGD, PGD7
from nfm.evaluate.square import Square
from nfm.randomness import torch_generator

SHAPE = (2, 6, 6)
IDS = torch.arange(64)


class Linear(nn.Module):
    """Binary and linear: the best attack is known."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", torch.randn(SHAPE, generator=torch_generator(0)))

    def score(self, x: Tensor) -> Tensor:
        return ((x - 0.5) * self.weight).flatten(1).sum(1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([-self.score(x), self.score(x)], 1) / 2


def interior(n: int = 64) -> Tensor:
    """Return pixels that no eps below 0.2 can push out of [0, 1]."""
    return 0.2 + 0.6 * torch.rand(n, *SHAPE, generator=torch_generator(1))


@pytest.fixture(scope="module")
def net() -> tuple[nn.Module, Tensor, Tensor]:
    """Return a small trained network, images and labels."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Flatten(), nn.Linear(72, 48), nn.ReLU(), nn.Linear(48, 5))
    centres = 0.35 + 0.3 * torch.rand(5, *SHAPE, generator=torch_generator(2))
    y = torch.arange(400) % 5
    x = (centres[y] + 0.15 * torch.randn(400, *SHAPE, generator=torch_generator(3))).clamp(0, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(120):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    return model.eval(), x, y


def accuracy(model: nn.Module, x: Tensor, y: Tensor) -> float:
    with torch.no_grad():
        return float((model(x).argmax(1) == y).double().mean())


def build(name: str, **options: object) -> Attack:
    small = {
        "strong": {"steps": 10, "targets": 3, "queries": 30},
        "square": {"queries": 30},
        "apgd": {"steps": 10},
    }
    return ATTACKS[name](**(small.get(name, {}) | options))  # type: ignore[arg-type]


@pytest.mark.parametrize("norm", ["linf", "l2"])
@pytest.mark.parametrize(
    "attack",
    [FGSM, lambda norm: PGD(norm, steps=10, random_start=False), PGD, lambda norm: APGD(norm, steps=40)],
    ids=["fgsm", "pgd without start", "pgd", "apgd"],
)
def test_the_optimum_of_a_linear_model_is_found(attack, norm: str) -> None:  # type: ignore[no-untyped-def]
    model, x = Linear(), interior()
    y = (model.score(x) > 0).long()
    eps = 0.02 if norm == "linf" else 0.1
    dual = float(model.weight.abs().sum() if norm == "linf" else model.weight.norm())
    with torch.no_grad():
        found = model.score(attack(norm)(model, x, y, IDS, eps, seed=0))
    best = model.score(x) - (2 * y - 1) * eps * dual
    flipped = best.sign() != model.score(x).sign()
    assert torch.allclose(found[~flipped], best[~flipped], atol=2e-3 * eps * dual)
    assert torch.equal(found > 0, best > 0)
    assert flipped.any()
    assert not flipped.all()


def test_square_comes_near_the_optimum_of_a_linear_model_and_never_beyond() -> None:
    model, x = Linear(), interior()
    y = (model.score(x) > 0).long()
    drop = 0.01 * float(model.weight.abs().sum())
    with torch.no_grad():
        found = Square(queries=600)(model, x, y, IDS, 0.01, seed=0)
        gain = (model.score(x) - model.score(found)) * (2 * y - 1)
        stands = (model.score(found) > 0).long() == y
    assert (gain <= drop * 1.0001).all()
    assert (gain[stands] > 0.6 * drop).all()


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_pgd_is_a_slow_loop(net: tuple[nn.Module, Tensor, Tensor], norm: str) -> None:
    model, x, y = net
    x, y = x[:6], y[:6]
    eps = 0.03 if norm == "linf" else 0.3
    found = PGD(norm, steps=5, random_start=False)(model, x, y, IDS[:6], eps, seed=0)
    for one, label, result in zip(x, y, found, strict=True):
        point = one.clone()
        for _ in range(5):
            leaf = point[None].clone().requires_grad_()
            F.cross_entropy(model(leaf), label[None]).backward()
            gradient = leaf.grad[0]  # type: ignore[index]
            way = gradient.sign() if norm == "linf" else gradient / gradient.norm()
            change = point + 0.25 * eps * way - one
            change = (
                change.clamp(-eps, eps) if norm == "linf" else change * min(1.0, eps / float(change.norm()))
            )
            point = (one + change).clamp(0, 1)
        assert torch.allclose(result, point, atol=1e-5)


@pytest.mark.parametrize("name", ATTACKS)
@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_every_attack_stays_in_its_ball(net: tuple[nn.Module, Tensor, Tensor], name: str, norm: str) -> None:
    model, x, y = net
    if (name, norm) == ("square", "l2"):
        with pytest.raises(UsageError, match="linf"):
            build(name, norm=norm)
        return
    eps = 0.1 if norm == "linf" else 1.0
    before, state = x[:64].clone(), torch.get_rng_state()
    found = build(name, norm=norm)(model, x[:64], y[:64], IDS, eps, seed=0)
    assert float(NORMS[norm].size(found - x[:64]).max()) <= eps + 1e-6
    assert found.min() >= 0
    assert found.max() <= 1
    assert torch.equal(x[:64], before)
    assert torch.equal(torch.get_rng_state(), state)
    assert accuracy(model, found, y[:64]) < accuracy(model, x[:64], y[:64])


@pytest.mark.parametrize("name", ATTACKS)
def test_eps_0_is_the_identity(net: tuple[nn.Module, Tensor, Tensor], name: str) -> None:
    model, x, y = net
    assert torch.equal(build(name)(model, x[:64], y[:64], IDS, 0, seed=0), x[:64])


def test_what_is_misclassified_already_is_left_alone(net: tuple[nn.Module, Tensor, Tensor]) -> None:
    model, x, y = net
    wrong = (y[:64] + (IDS % 2)) % 5  # every other label is wrong
    found = PGD()(model, x[:64], wrong, IDS, 0.1, seed=0)
    hit = model(x[:64]).argmax(1) == wrong
    assert torch.equal(found[~hit], x[:64][~hit])
    assert not torch.equal(found[hit], x[:64][hit])


@pytest.mark.parametrize("name", ["pgd", "apgd", "square"])
def test_randomness_is_keyed_by_example(name: str) -> None:
    model, x = Linear(), interior()
    y = (model.score(x) > 0).long()
    attack = build(name)
    whole = attack(model, x, y, IDS, 0.01, seed=0)
    parts = [attack(model, x[i : i + 9], y[i : i + 9], IDS[i : i + 9], 0.01, seed=0) for i in range(0, 64, 9)]
    assert torch.allclose(torch.cat(parts), whole, atol=1e-6)
    norm = NORMS["linf"]
    first, other = (norm.start(x, attack.stream(IDS, 0.01, seed=seed), 0.01, purpose=0) for seed in (0, 1))
    assert not torch.equal(first, other)


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_a_random_start_is_uniform_in_the_ball(norm: str) -> None:
    x = torch.full((3000, 3), 0.5)
    stream = PGD(norm).stream(torch.arange(3000), 0.3, seed=0)
    size = NORMS[norm].size(NORMS[norm].start(x, stream, 0.3, purpose=0) - x) / 0.3
    assert size.max() <= 1 + 1e-5
    assert float((size**3).mean()) == pytest.approx(0.5, abs=0.03)  # the share of volume within the radius


def test_stronger_attacks_leave_less(net: tuple[nn.Module, Tensor, Tensor]) -> None:
    model, x, y = net
    ids, eps = torch.arange(400), 0.06
    left = {
        label: accuracy(model, attack(model, x, y, ids, eps, seed=0), y)
        for label, attack in {
            "fgsm": FGSM(), "pgd7": PGD7(), "pgd": PGD(restarts=2),
            "apgd": APGD(steps=50), "apgd_t": APGD(loss="dlr_targeted", steps=50, targets=4),
            "square": Square(queries=300), "strong": Strong(steps=50, targets=4, queries=100),
        }.items()
    }  # fmt: skip
    assert left["strong"] <= min(left["apgd"], left["apgd_t"]) <= left["pgd"] + 0.005
    assert left["pgd"] <= left["pgd7"] <= left["fgsm"] < left["square"]
    assert 0.05 < left["strong"] < 0.9


def test_a_hidden_gradient_fools_pgd_but_not_dlr(net: tuple[nn.Module, Tensor, Tensor]) -> None:
    model, x, y = net
    ids = torch.arange(400)

    def loud(pixels: Tensor) -> Tensor:
        return model(pixels) * 1e4  # the cross-entropy saturates: its gradient is 0

    def left(attack: Attack) -> float:
        return accuracy(loud, attack(loud, x, y, ids, 0.06, seed=0), y)  # type: ignore[arg-type]

    assert left(APGD(loss="dlr", steps=30)) < left(PGD()) - 0.1


def test_losses() -> None:
    z = torch.tensor([[3.0, 1.0, 0.0, -2.0], [1.0, 2.0, 5.0, 4.0]])
    y = torch.tensor([0, 1])
    assert margin(z, y).tolist() == [-2.0, 3.0]
    assert difference_of_logits_ratio(z, y).tolist() == pytest.approx([-2 / 3, 3 / 3])
    assert torch.allclose(difference_of_logits_ratio(z * 7 + 1, y), difference_of_logits_ratio(z, y))
    assert targeted_ratio(z, y, torch.tensor([2, 3])).tolist() == pytest.approx([-3 / 4, 2 / 3.5])
    for loss in (difference_of_logits_ratio, lambda a, b: targeted_ratio(a, b, b)):
        with pytest.raises(UsageError, match="classes"):
            loss(z[:, :2], torch.tensor([0, 1]))


def test_checkpoints_are_the_papers() -> None:
    assert list(checkpoints(100)) == [22, 41, 57, 70, 80, 87, 93, 99]
    assert sum(checkpoints(100).values()) == 99
    assert list(checkpoints(3)) == [1, 2, 3]


def test_square_sides_shrink() -> None:
    sides = [Square(queries=10_000).side(query, 32, 32) for query in (0, 11, 51, 201, 9999)]
    assert sides == [29, 20, 14, 10, 1]


def test_gradient_faults(net: tuple[nn.Module, Tensor, Tensor]) -> None:
    model, x, y = net

    def share(classifier: Classifier) -> dict[str, float]:
        found = gradient_faults(classifier, x, y, torch.arange(len(x)), seed=0)
        return {fault: float(where.double().mean()) for fault, where in found.items()}

    none = {"zero gradients": 0, "NaN gradients": 0}
    assert share(model) == share(lambda pixels: model(pixels) * 1e4) == none
    assert share(lambda pixels: model(torch.round(pixels))) == none | {"zero gradients": 1}
    assert share(lambda pixels: model(pixels.detach())) == none | {"zero gradients": 1}
    assert share(lambda pixels: model(pixels + no_number(pixels))) == none | {"NaN gradients": 1}
    off_grid = share(lambda pixels: model(pixels + no_number(pixels) if (pixels != x).any() else pixels))
    assert off_grid == none | {"NaN gradients": 1}


def no_number(x: Tensor) -> Tensor:
    """Return zeros whose gradient is NaN."""
    return torch.where(x > 2, (-x * x - 1).sqrt(), 0)


@dataclass(frozen=True)
class Cheat(Attack):
    """Leaves the ball."""

    name: ClassVar[str] = "cheat"

    def search(self, model, x, y, stream, eps, attempt):  # type: ignore[no-untyped-def]
        return (x + 2 * eps).clamp(0, 1)


def test_an_attack_that_leaves_its_ball_is_caught(net: tuple[nn.Module, Tensor, Tensor]) -> None:
    model, x, y = net
    with pytest.raises(NumericalError, match=r"left its bounds \(eps exceeded by 0\.1"):
        Cheat()(model, x, y, torch.arange(400), 0.1, seed=0)


def test_bad_settings_are_refused(net: tuple[nn.Module, Tensor, Tensor]) -> None:
    model, x, y = net
    ids = torch.arange(400)
    cases = [
        ("/255", lambda: PGD()(model, x, y, ids, 8, seed=0)),
        ("/255", lambda: PGD("l2")(model, x, y, ids, 128, seed=0)),
        ("from 0 up", lambda: PGD()(model, x, y, ids, -0.1, seed=0)),
        ("from 0 up", lambda: PGD()(model, x, y, ids, math.nan, seed=0)),
        ("cannot reach", lambda: PGD(steps=3)),
        ("above 0", lambda: PGD(steps=0)),
        ("above 0", lambda: PGD(step=0)),
        ("same walk", lambda: PGD(random_start=False, restarts=2)),
        ("did you mean 'linf'", lambda: PGD("linff")),
        ("loss", lambda: APGD(loss="mse")),  # type: ignore[arg-type]
        ("queries", lambda: Square(queries=0)),
        ("black-box", lambda: PGD()(lambda pixels: model(pixels).detach(), x, y, ids, 0.1, seed=0)),
        ("8/255", lambda: parse_eps("eight")),
        ("pixels", lambda: PGD()(model, x * 3 - 1, y, ids, 0.1, seed=0)),
    ]
    for message, refused in cases:
        with pytest.raises(UsageError, match=message):
            refused()
    with pytest.raises(ShapeError, match="images"):
        Square()(model, x.flatten(1), y, ids, 0.1, seed=0)


def test_eps_is_read_in_255ths() -> None:
    assert parse_eps("8/255") == 8 / 255
    assert parse_eps("0.5") == parse_eps(0.5) == 0.5
    levels = {cell.level for cell in attack_suite(["2/255"])}
    assert levels == {0.0, 2 / 255, 1.0}


def test_labels_tell_the_settings() -> None:
    assert PGD7().label == "pgd7"
    assert PGD("l2", steps=50).label == "pgd(norm=l2,steps=50)"
