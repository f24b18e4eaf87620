"""What `describe` says is what the network does, and it leaves no trace."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from nfm.models import MODELS, Stage, Task, build, describe, format_description
from nfm.models.third_party import ThirdParty


@pytest.mark.parametrize("name", [name for name in MODELS if name not in ("wrn28_10", "preact_resnet50")])
def test_every_parameter_and_every_default_site_is_told(name: str, images) -> None:
    model = build(name, num_classes=10)
    rows = describe(model, images(1, 3, 32, 32))
    assert sum(row.parameters for row in rows) == sum(p.numel() for p in model.parameters())
    assert tuple(row.site for row in rows if row.site) == model.default_sites
    assert all(row.shape is not None and row.shape[0] == 1 for row in rows)
    assert rows[-1].name == "head"


def test_shapes_of_a_known_network(images) -> None:
    rows = describe(build("preact_resnet18", num_classes=10), images(2, 3, 32, 32))
    assert rows[0] == Stage("normalise", (2, 3, 32, 32), 0, "input")
    assert rows[3] == Stage("stage2", (2, 128, 16, 16), 524_288 + 896, "stage2")  # convolutions + norms
    assert [row.name for row in rows][-3:] == ["stage4", "final", "head"]


def test_nothing_of_the_model_changes(images) -> None:
    model = build("small_conv", num_classes=10)
    model.stage2.eval()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    state = torch.get_rng_state()
    describe(model, images(2, 3, 16, 16))
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert (model.training, model.stage1.training, model.stage2.training) == (True, True, False)
    assert not any(module._forward_hooks for module in model.modules())


def test_a_failed_pass_leaves_no_hooks_and_no_mode(images) -> None:
    model = build("small_conv", num_classes=10)
    with pytest.raises(RuntimeError, match="channels"):
        describe(model, images(2, 5, 16, 16))
    assert model.training
    assert not any(module._forward_hooks for module in model.modules())


def test_a_network_of_others_is_opened_one_level(images) -> None:
    net = nn.Sequential()
    net.layer1, net.layer2, net.layer3 = nn.Conv2d(3, 4, 1), nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4)
    net.scale = nn.Parameter(torch.ones(5))
    net.skip = nn.Identity()
    rows = describe(ThirdParty(Task(num_classes=2), net), images(1, 3, 4, 4))
    assert [(row.name, row.parameters, row.site) for row in rows] == [
        ("normalise", 0, "input"),
        ("net.layer1", 16, "net.layer1"),
        ("net.layer2", 20, "net.layer2"),
        ("net.layer3", 8, "net.layer3"),
        ("(outside stages)", 5, None),
    ]


def test_the_table() -> None:
    rows = [Stage("normalise", (1, 3, 8, 8), 0, "input"), Stage("head", (1, 10), 1290, None)]
    assert format_description([*rows, Stage("(outside stages)", None, 5, None)]).split("\n") == [
        "stage             output     parameters  default site",
        "normalise         3 x 8 x 8           0  input",
        "head              10              1,290",
        "(outside stages)                      5",
        "total                             1,295",
    ]
