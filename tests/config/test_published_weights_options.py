"""Published weights to begin with are asked of the library that has them, for that very network."""

from __future__ import annotations

import pytest
from torch import nn

from nfm.config import build
from nfm.config.initial import published_options
from nfm.config.schema import Facts, ModelConfig
from nfm.errors import EnvironmentProblem, UsageError

FACTS = Facts((3, 8, 8), ("a", "b"), (0.5,) * 3, (0.2,) * 3)


def test_only_the_named_network_can_have_them() -> None:
    assert published_options("timm:resnet18", "timm:resnet18") == {"pretrained": True}
    assert published_options("torchvision:resnet18", "torchvision:resnet18") == {"weights": "DEFAULT"}
    assert published_options("runs/x", "timm:resnet18") == {}
    with pytest.raises(UsageError, match="--model timm:resnet18"):
        published_options("timm:resnet18", "small_conv")


def test_they_are_asked_for_and_no_file_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, object] = {}

    def network(name: str, **call: object) -> nn.Module:
        asked.update(call, name=name)
        return nn.Linear(1, 1)

    monkeypatch.setattr(build, "build_network", network)
    build.build_model(ModelConfig("timm:resnet18", init_from="timm:resnet18"), FACTS, seed=0)
    assert asked["pretrained"] is True
    asked.clear()
    build.build_model(ModelConfig("timm:resnet18"), FACTS, seed=0)
    assert "pretrained" not in asked


def test_a_hub_that_cannot_be_reached_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(name: str, **call: object) -> nn.Module:
        raise ConnectionError("no route to host")

    monkeypatch.setattr(build, "build_network", unreachable)
    with pytest.raises(EnvironmentProblem, match="cannot fetch the weights of timm:resnet18: no route"):
        build.build_model(ModelConfig("timm:resnet18", init_from="timm:resnet18"), FACTS, seed=0)
