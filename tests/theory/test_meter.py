"""The meter: rows of a network, the same as single measurements; training with it is training without it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from smooth import examples, smooth_net

from nets import ConvNet, batch, build
from nfm.core.noise import Noise
from nfm.data import load
from nfm.errors import UsageError
from nfm.method.presets import preset
from nfm.models import build as build_model
from nfm.results import read_rows
from nfm.theory import (
    Meter,
    Yardstick,
    adversarial_bound,
    expansion,
    measure,
    mixing_radius,
    output_norms,
    site_map,
)
from nfm.train.fit import fit
from nfm.train.progress import Silent


def test_a_row_is_what_the_single_results_say() -> None:
    net, (x, y) = smooth_net(), examples(8)
    how = Yardstick(noise=Noise(0.3, 0.2), probes=32)
    (row,) = measure(net, x, y, sites=("1",), with_=how)
    terms = expansion(net, x, y, site="1", noise=how.noise, exact=True, draws=2).terms
    assert (row["r1"], row["r2_total"]) == pytest.approx((terms.first.r1, terms.r2_total))
    assert row["r2_add"] == pytest.approx(0.3**2 * terms.first.r2_add)
    assert abs(row["r3_total"] - terms.r3_total.value) < 4 * row["r3_error"]
    assert row["jacobian_norm"] == pytest.approx(float(output_norms(site_map(net, x, site="1")).mean()))
    assert row["eps_mix"] == pytest.approx(float(mixing_radius(net, x, y, sites=("1",)).mean()))
    bound = adversarial_bound(net, x, y, sites=("1",), noise=how.noise, eps=0.25)
    assert float(bound.radius.mean()) == pytest.approx(0.25 * row["eps_mix"])
    assert row["r1"] != pytest.approx(measure(net, x, y, sites=("input",), with_=how)[0]["r1"], rel=1e-2)


def test_a_piecewise_linear_network_has_no_r3() -> None:
    net, (x, y) = build(ConvNet), batch(4, 3, 5, 5)
    rows = measure(net, x, y, sites=("input", "first"))
    assert [(row["r3_total"], row["r3_error"]) for row in rows] == [(0, 0)] * 2
    assert rows[0]["margin"] >= 0
    assert measure(net, x, y, sites=("input",), with_=Yardstick(steps=0))[0]["margin"] is None
    with pytest.raises(UsageError, match="sites: expected at least one"):
        measure(net, x, y, sites=())


def trained(path: Path | None) -> dict[str, torch.Tensor]:
    net = build_model("mlp", num_classes=2, in_channels=2, image_size=None, units=8)
    data = load("circles:60")
    progress = None if path is None else Meter(
        net, data.train.fetch(torch.arange(8)), torch.as_tensor(data.train.labels)[:8], path, Silent(),
        ("input", "hidden1"), every=2, tags={"run": "toy"},
    )  # fmt: skip
    fit(net, preset("nfm"), data, epochs=3, batch_size=16, progress=progress or Silent())
    return net.state_dict()


def test_training_with_a_meter_is_training_without(tmp_path: Path, untouched_generators: None) -> None:
    path = tmp_path / "theory.jsonl"
    with_meter, without = trained(path), trained(None)
    assert all(torch.equal(with_meter[name], without[name]) for name in without)
    rows = list(read_rows(path))
    assert [(row["epoch"], row["site"]) for row in rows] == [
        (epoch, site) for epoch in (0, 2, 3) for site in ("input", "hidden1")
    ]
    assert {row["run"] for row in rows} == {"toy"}
    assert rows[0]["r1"] != rows[-2]["r1"]
    trained(path)  # a run from the start takes the place of the old rows
    assert list(read_rows(path)) == rows
