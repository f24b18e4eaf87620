"""A new head: found in usual networks, fresh, keyed, and refused where it is not plain which one it is."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from nfm.errors import UsageError
from nfm.models import MODELS, build, find_head, replace_head

LIGHT = [name for name in MODELS if name not in ("wrn28_10", "preact_resnet34", "preact_resnet50")]


def network(**children: nn.Module) -> nn.Module:
    return nn.ModuleDict(children)


@pytest.mark.parametrize("name", LIGHT)
def test_our_networks_get_a_head_for_other_classes(name: str, images) -> None:
    model = build(name, num_classes=10).eval()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    state = torch.get_rng_state()
    assert replace_head(model, 3) == "head"
    assert torch.equal(state, torch.get_rng_state())
    assert model(images(2, 3, 32, 32)).shape == (2, 3)
    changed = {key for key, value in model.state_dict().items() if not torch.equal(value, before[key])}
    assert changed == {"head.weight", "head.bias"}


@pytest.mark.parametrize(
    ("model", "name"),
    [
        (network(conv1=nn.Conv2d(3, 8, 3), fc=nn.Linear(8, 10)), "fc"),  # torchvision and timm ResNets
        (network(features=nn.Conv2d(3, 8, 3), classifier=nn.Linear(8, 10)), "classifier"),  # DenseNet
        (
            network(classifier=nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 10))),  # VGG
            "classifier.2",
        ),
        (network(head=network(norm=nn.LayerNorm(8), fc=nn.Linear(8, 10))), "head.fc"),  # timm ConvNeXt
        (network(heads=network(head=nn.Linear(8, 10))), "heads.head"),  # torchvision ViT
        (network(head_drop=nn.Dropout(), fc_norm=nn.LayerNorm(8), head=nn.Linear(8, 10)), "head"),  # timm ViT
        (network(net=network(fc=nn.Linear(8, 10))), "net.fc"),
        (network(net=network(fc=nn.Linear(8, 10)), head=nn.Linear(8, 10)), "head"),
    ],
)
def test_usual_heads_are_found_and_replaced(model: nn.Module, name: str) -> None:
    model = copy.deepcopy(model)
    inputs = model.get_submodule(name).in_features
    assert find_head(model) == name
    assert replace_head(model, 4) == name
    assert model.get_submodule(name).weight.shape == (4, inputs)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (network(body=nn.Linear(3, 4)), "ModuleDict has none"),
        (network(head=nn.Conv2d(3, 10, 1)), "has none"),
        (network(head=nn.Linear(3, 4), head_dist=nn.Linear(3, 4)), "head and head_dist"),
    ],
)
def test_a_head_that_is_not_plain_is_refused(model: nn.Module, words: str) -> None:
    with pytest.raises(UsageError, match=rf"expected one of head, heads, .*{words}"):
        replace_head(model, 4)


def test_a_head_is_keyed_and_keeps_device_dtype_bias_and_mode() -> None:
    def fresh(seed: int) -> nn.Linear:
        model = network(fc=nn.Linear(8, 10, bias=False, dtype=torch.bfloat16)).eval()
        replace_head(model, 4, seed=seed)
        return model.fc

    head = fresh(1)
    assert (head.bias, head.weight.dtype, head.training) == (None, torch.bfloat16, False)
    assert head.weight.requires_grad
    assert torch.equal(head.weight, fresh(1).weight)
    assert not torch.equal(head.weight, fresh(2).weight)


def test_no_classes_are_refused() -> None:
    with pytest.raises(UsageError, match=r"num_classes.*got 0"):
        replace_head(build("mlp", num_classes=2), 0)
