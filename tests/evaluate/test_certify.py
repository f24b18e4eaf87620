"""Certified radii: the closed form of a linear classifier, attacks, any batching, killed and gone on, refusals."""

from __future__ import annotations

import json
import math
import os
import signal
import time
from pathlib import Path
from statistics import NormalDist

import pytest
import torch
from torch import Tensor, nn

from nets import build
from nfm.core.binomial import lower_bound
from nfm.data.examples import Examples
from nfm.errors import DataError, NumericalError, ShapeError, UsageError
from nfm.evaluate.certificates import CertificationFolder, certified_accuracy, round_radii
from nfm.evaluate.certify import (
    UNIT,
    Certificate,
    Smoothing,
    certify,
    certify_one,
    choose_order,
    count_classes,
    predict_smoothed,
)
from nfm.randomness import torch_generator
from running import start

NORMAL = NormalDist()
WEIGHT = torch.randn(12, generator=torch_generator(1))
HOW = Smoothing(0.3, n=1000, n0=50)


class Half(nn.Module):
    """Class 1 on one side of a plane through the middle of the pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(12, 2)
        with torch.no_grad():
            self.head.weight.copy_(torch.stack([-WEIGHT, WEIGHT]) / 2)
            self.head.bias.copy_(torch.tensor([1.0, -1.0]) * float(WEIGHT.sum()) / 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x.flatten(1))


def vectors(n: int = 40, *, classes: int = 2) -> Examples:
    x = torch.rand(n, 12, generator=torch_generator(2))
    side = ((x - 0.5) @ WEIGHT > 0).long()
    return Examples(x, side if classes == 2 else torch.arange(n) % classes, torch.arange(n) + 700)


def distances(x: Tensor) -> Tensor:
    """Return how far each example is from the plane: the exact radius of the smoothed classifier."""
    return ((x - 0.5) @ WEIGHT).abs() / WEIGHT.norm()


def test_a_linear_classifier_against_its_closed_form() -> None:
    examples, how = vectors(), Smoothing(0.3, n=4000, n0=50)
    found = certify(Half(), examples, how)
    true = dict(zip(examples.ids.tolist(), distances(examples.images).tolist(), strict=True))
    certified = plain = 0
    for row in found.rows:
        share = NORMAL.cdf(true[row["id"]] / how.sigma)
        assert (
            row["hits"] / how.n == pytest.approx(share, abs=5 * math.sqrt(0.25 / how.n)) or not row["correct"]
        )
        assert row["p_lower"] == lower_bound(row["hits"], how.n, alpha=how.alpha)
        if row["abstained"]:
            assert row["radius"] is None
            assert true[row["id"]] < 0.1 * how.sigma
            continue
        certified += 1
        assert row["radius"] == how.sigma * NORMAL.inv_cdf(row["p_lower"])
        assert row["radius"] <= true[row["id"]]
        if share < 0.98:
            assert row["radius"] > true[row["id"]] - 0.3 * how.sigma
        plain += row["hits"] < how.n and how.sigma * NORMAL.inv_cdf(row["hits"] / how.n) > true[row["id"]]
    assert certified > 25
    assert plain > 3  # the share itself, without the bound, certifies too much about every second time
    assert (found.rows[0]["unit"], found.rows[0]["sigma"]) == (UNIT, 0.3)


def test_the_risk_is_alpha() -> None:
    """At alpha = .2 about a fifth of the certificates passes the plane, and not much more."""
    x = torch.full((12,), 0.5) + 0.3 * WEIGHT / WEIGHT.norm()  # one sigma from the plane
    wrong = 0
    for name in range(300):
        found = certify_one(Half(), x, name, Smoothing(0.3, n=100, n0=10, alpha=0.2))
        wrong += found.radius is not None and found.radius > 0.3
    assert 20 < wrong < 60 + 5 * math.sqrt(300 * 0.2 * 0.8)


class Bent(nn.Module):
    """Three classes with boundaries that are no planes."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 3))
        with torch.no_grad():
            self.layers[0].weight.mul_(6)
            self.layers[0].bias.copy_(-self.layers[0].weight @ torch.full((12,), 0.5))
            self.layers[2].weight.mul_(10)

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


def attack(model: nn.Module, x: Tensor, label: int, radius: float, sigma: float) -> Tensor:
    """Return x moved by at most `radius` (l2) by PGD against the smoothed classifier: EOT over 64 draws a step."""
    generator, delta = torch_generator(9), torch.zeros_like(x)
    for _ in range(12):
        delta.requires_grad_(True)
        noise = sigma * torch.randn(64, *x.shape, generator=generator)
        loss = nn.functional.cross_entropy(model(x + delta + noise), torch.full((64,), label))
        (slope,) = torch.autograd.grad(loss, delta)
        with torch.no_grad():
            delta = delta + radius / 4 * slope / slope.norm().clamp(min=1e-12)
            delta = delta * (radius / delta.norm().clamp(min=1e-12)).clamp(max=1)
    return (x + delta).detach()


def test_no_certified_example_is_broken_within_its_radius() -> None:
    model, how, examples = build(Bent).eval(), Smoothing(0.25, n=1000, n0=50), vectors(30, classes=3)
    tried = changed = beyond = 0
    for x, name in zip(examples.images, examples.ids.tolist(), strict=True):
        found = certify_one(model, x, name, how)
        if found.radius is None or found.predicted is None:
            continue
        tried += 1
        for factor in (0.999, 5.0):
            moved = attack(model, x, found.predicted, factor * found.radius, how.sigma)
            told = int(count_classes(model, how.noisy(moved, name, 1, "check", 2000, 2000)).argmax())
            changed += told != found.predicted and factor < 1
            beyond += told != found.predicted and factor > 1
    assert tried > 12
    assert changed == 0
    assert beyond > 5  # the attack is one


@pytest.mark.parametrize("size", [1, 7, 64, 1000])
def test_batch_size_and_order_change_nothing(size: int) -> None:
    model, examples, how = build(Bent), vectors(6, classes=3), Smoothing(0.25, n=70, n0=20)
    whole = certify(model, examples, how).rows
    assert certify(model, examples, how, batch_size=size).rows == whole
    turned = certify(model, examples.subset(torch.arange(5, -1, -1)), how).rows
    assert turned == whole
    assert certify(model, examples, how, seed=1).rows != whole


def test_predict_abstains_at_the_boundary_and_else_is_right() -> None:
    middle = torch.full((1, 12), 0.5)
    x = torch.cat([middle, middle + 0.2 * WEIGHT / WEIGHT.norm(), middle - 0.2 * WEIGHT / WEIGHT.norm()])
    assert predict_smoothed(Half(), x, torch.arange(3), HOW) == [None, 1, 0]
    rash = Smoothing(0.3, n=1001, n0=50, alpha=0.999999)
    assert None not in predict_smoothed(Half(), x, torch.arange(3), rash)


def test_one_output_tells_no_class() -> None:
    x, ids = vectors(3).images, torch.arange(3)
    one = nn.Linear(12, 1)
    with pytest.raises(ShapeError, match=r"two classes or more, got one output.*torch.cat\(\[-f, f\], 1\)"):
        predict_smoothed(one, x, ids, HOW)
    with pytest.raises(ShapeError, match="two classes or more"):
        certify_one(one, x[0], 0, HOW)
    told = predict_smoothed(lambda pixels: torch.cat([-one(pixels), one(pixels)], 1), x, ids, HOW)
    assert set(told) <= {None, 0, 1}
    with pytest.raises(UsageError, match="batch_size: expected a whole number from 1 up, got 0"):
        predict_smoothed(Half(), x, ids, HOW, batch_size=0)


def test_limits_are_parts_of_each_other(tmp_path: Path) -> None:
    ids = torch.arange(50) + 7
    few, more = choose_order(ids, 5, 0), choose_order(ids, 20, 0)
    assert torch.equal(few, more[:5])
    assert len(choose_order(ids, None, 0)) == 50
    assert not torch.equal(choose_order(ids, 5, 1), few)
    first = certify(Half(), vectors(), HOW, limit=3, save_to=tmp_path)
    counted: list[int] = []
    second = certify(
        Half(), vectors(), HOW, limit=8, save_to=tmp_path, progress=lambda *told: counted.append(told[1])
    )
    assert second.rows[:3] == first.rows
    assert counted == [1050 * done for done in range(1, 6)]  # five examples, n + n0 draws each
    assert CertificationFolder(tmp_path).read() == second


def test_a_torn_last_line_is_certified_again(tmp_path: Path) -> None:
    whole = certify(Half(), vectors(), HOW, limit=4, save_to=tmp_path)
    rows = tmp_path / "rows.jsonl"
    content = rows.read_bytes()
    rows.write_bytes(content[:-30])
    assert certify(Half(), vectors(), HOW, limit=4, save_to=tmp_path) == whole
    assert rows.read_bytes() == content
    rows.write_bytes(b"{no row}\n" + content)
    with pytest.raises(DataError, match="line 1: expected a JSON object"):
        certify(Half(), vectors(), HOW, limit=4, save_to=tmp_path)


def _certify_slowly(out: str) -> None:
    certify(Half(), vectors(), HOW, limit=12, save_to=out, progress=lambda *_: time.sleep(0.2))


def test_killed_and_gone_on(tmp_path: Path) -> None:
    process = start(_certify_slowly, str(tmp_path / "killed"))
    rows = tmp_path / "killed" / "rows.jsonl"
    while process.is_alive() and not (rows.exists() and rows.read_bytes().count(b"\n") >= 2):
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert 2 <= rows.read_bytes().count(b"\n") < 12
    certify(Half(), vectors(), HOW, limit=12, save_to=tmp_path / "killed")
    certify(Half(), vectors(), HOW, limit=12, save_to=tmp_path / "whole")
    assert rows.read_bytes() == (tmp_path / "whole" / "rows.jsonl").read_bytes()


def test_another_certification_is_refused(tmp_path: Path) -> None:
    certify(Half(), vectors(), HOW, limit=2, save_to=tmp_path)
    with pytest.raises(UsageError, match=r"holds another certification \(sigma: 0.3 there, 0.4 here\)"):
        certify(Half(), vectors(), Smoothing(0.4, n=1000, n0=50), limit=2, save_to=tmp_path)
    with pytest.raises(UsageError, match=r"model: .* there"):
        certify(build(lambda: nn.Linear(12, 2)), vectors(), HOW, limit=2, save_to=tmp_path)
    about = json.loads((tmp_path / "certified.json").read_text())
    assert about["alpha"] == 0.001
    assert "torch" in about["provenance"]


def test_certified_accuracy() -> None:
    rows = [
        {"correct": True, "radius": 0.5, "abstained": False, "n": 100},
        {"correct": True, "radius": 0.2, "abstained": False, "n": 100},
        {"correct": False, "radius": 0.9, "abstained": False, "n": 100},
        {"correct": False, "radius": None, "abstained": True, "n": 100},
    ]
    shares = {row["radius"]: row["accuracy"] for row in certified_accuracy(rows)}
    assert shares == {0.0: 0.5, 0.2: 0.25, 0.5: 0.0}
    (row,) = certified_accuracy(rows, [0.1])
    assert (row["accuracy"], row["n"], row["draws"]) == (0.5, 4, 100)
    assert row["lo"] < 0.5 < row["hi"]
    assert round_radii(rows) == [0, 0.1, 0.2, 0.3, 0.4]
    assert round_radii(rows[2:]) == [0]
    with pytest.raises(UsageError, match="at least one certified example"):
        certified_accuracy([])
    with pytest.raises(UsageError, match="radii: expected"):
        certified_accuracy(rows, [-1])


def test_summary() -> None:
    found = certify(Half(), vectors(), HOW)
    told = found.summary()
    assert told["n"] == 40
    assert told["accuracy"] == found.curve([0])[0]["accuracy"]
    assert told["mean_radius"] == pytest.approx(
        sum(row["radius"] for row in found.rows if row["correct"]) / 40
    )
    assert 0 < told["abstained"] < 0.5


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sigma": 0.0}, "sigma: expected a deviation above 0"),
        ({"sigma": -0.1}, "sigma: expected"),
        ({"sigma": math.nan}, "sigma: expected"),
        ({"sigma": math.inf}, "sigma: expected"),
        ({"sigma": 0.1, "alpha": 0.0}, "alpha: expected"),
        ({"sigma": 0.1, "alpha": 1.0}, "alpha: expected"),
        ({"sigma": 0.1, "n": 0}, "n: expected a number of draws"),
        ({"sigma": 0.1, "n0": 0}, "n0: expected a number of draws"),
        ({"sigma": 0.1, "n": 1.5}, "n: expected a number of draws"),
        ({"sigma": 0.1, "n": 9}, "n: expected at least 10 draws"),
    ],
)
def test_bad_settings(settings: dict[str, float], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Smoothing(**settings)
    assert Smoothing(0.1, n=10).n == 10  # 10 draws that agree do certify at alpha = .001


def test_bad_models_and_examples() -> None:
    examples = vectors()
    with pytest.raises(UsageError, match="refused: NaN logits"):
        certify(lambda x: x[:, :2] * math.nan, examples, HOW)
    with pytest.raises(NumericalError, match="not finite under noise"):
        certify(lambda x: torch.where(x[:, :2] < 0, math.nan, x[:, :2]), examples, HOW)
    with pytest.raises(ShapeError, match="expected logits of shape"):
        certify(lambda x: x.sum(1), examples, HOW)
    with pytest.raises(ShapeError, match="expected a model with 3 outputs"):
        certify(Half(), examples, HOW, classes=3)
    noisy = nn.Sequential(Half(), nn.Dropout(0.5))
    noisy[1].eval = noisy[1].train = lambda *_: noisy[1]  # stays in training mode
    with pytest.raises(UsageError, match="refused: stochastic model"):
        certify(noisy, examples, HOW)
    with pytest.raises(UsageError, match="limit: expected"):
        certify(Half(), examples, HOW, limit=0)
    with pytest.raises(UsageError, match="batch_size"):
        certify(Half(), examples, HOW, batch_size=0)
    far = Examples(examples.images + 3, examples.labels, examples.ids)
    with pytest.raises(UsageError, match=r"expected pixels in \[0, 1\]"):
        certify(Half(), far, HOW, limit=1)


def test_probabilities_may_be_certified() -> None:
    """An argmax is the same of logits and of probabilities; the sweep, which needs logits, refuses these."""
    soft = nn.Sequential(Half(), nn.Softmax(1))
    plain, found = (certify(model, vectors(), HOW, limit=3).rows for model in (Half(), soft))
    assert [row["hits"] for row in found] == [row["hits"] for row in plain]
    assert found[0]["flags"] == []


def test_nothing_certified() -> None:
    """A classifier that guesses by the sign of the noise abstains."""
    found = certify_one(lambda x: x[:, :2] - 0.5, torch.full((12,), 0.5), 3, HOW)
    assert isinstance(found, Certificate)
    assert (found.predicted, found.radius) == (None, None)
    assert found.p_lower <= 0.5
