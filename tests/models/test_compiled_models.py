"""Every family is one graph for the compiler."""

from __future__ import annotations

import pytest
import torch

from nfm.models import build

FAMILIES = ["preact_resnet18", "wrn40_2", "cifar_resnet20", "resnet18", "vit_lite_7_4", "mlp", "small_conv"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", FAMILIES)
def test_fullgraph_gives_the_same_output(name: str, training: bool, images) -> None:
    torch.compiler.reset()
    model = build(name, num_classes=4, mean=(0.5,) * 3, std=(0.2,) * 3).train(training)
    x = images(4, 3, 32, 32)
    expected = model(x)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), expected, rtol=1e-4, atol=1e-4)
    assert not torch.allclose(compiled(1 - x), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_inductor_trains_the_small_network(images) -> None:
    torch.compiler.reset()
    plain, twin = (build("small_conv", num_classes=4) for _ in range(2))
    compiled = torch.compile(twin, fullgraph=True)
    x = images(4, 3, 8, 8)
    plain(x).square().sum().backward()
    compiled(x).square().sum().backward()
    torch.testing.assert_close(twin.stage1[0].weight.grad, plain.stage1[0].weight.grad, rtol=1e-3, atol=1e-4)
