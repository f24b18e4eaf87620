"""The fully connected and the small convolutional network."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from nfm.models import build


def test_the_mlp_is_four_linear_maps_with_relu_between(scramble, images) -> None:
    model = scramble(build("mlp", num_classes=3, in_channels=2, image_size=None, units=16))
    x, state = images(5, 2), model.state_dict()
    h = x
    for number in (1, 2, 3):
        h = F.relu(h @ state[f"hidden{number}.0.weight"].T + state[f"hidden{number}.0.bias"])
    expected = h @ state["head.weight"].T + state["head.bias"]
    torch.testing.assert_close(model(x), expected)
    assert not torch.allclose(model(-x), expected)
    assert sum(p.numel() for p in model.parameters()) == (2 * 16 + 16) + 2 * (16 * 16 + 16) + (16 * 3 + 3)


def test_the_mlp_flattens_images(images) -> None:
    model = build("mlp", num_classes=3, in_channels=1, image_size=8)
    x = images(4, 1, 8, 8)
    assert torch.equal(model(x), model.head(model.hidden3(model.hidden2(model.hidden1(x.flatten(1))))))


def test_hidden_sites_are_activations_before_dropout(images) -> None:
    model = build("mlp", num_classes=3, in_channels=2, image_size=None, units=512, dropout=0.5)
    x = images(8, 2)
    sites: list[torch.Tensor] = []
    into: list[torch.Tensor] = []
    model.hidden1.register_forward_hook(lambda _m, _i, h: sites.append(h))
    model.hidden2.register_forward_pre_hook(lambda _m, inputs: into.append(inputs[0]))
    model(x)
    (site,), (after,) = sites, into
    torch.testing.assert_close(site, F.relu(model.hidden1[0](x)))
    alive = site > 0
    share = (after[alive] == 0).float().mean().item()
    assert abs(share - 0.5) < 5 * 0.5 / alive.sum().sqrt().item()
    torch.testing.assert_close(after[after > 0], 2 * site[after > 0])
    assert torch.equal(model.eval()(x), model(x))


def test_depth_is_the_number_of_linear_maps() -> None:
    assert build("mlp", num_classes=3, depth=6).default_sites == (
        "input",
        *(f"hidden{n}" for n in range(1, 6)),
    )
    assert build("mlp", num_classes=3, depth=1).default_sites == ("input",)


def test_the_small_conv_net_equals_its_formula(scramble, images) -> None:
    model = scramble(build("small_conv", num_classes=10, in_channels=1))
    x, state = images(3, 1, 8, 8), model.state_dict()
    h = x
    for number, stride in ((1, 1), (2, 2), (3, 2)):
        key = f"stage{number}.1"
        h = F.conv2d(h, state[f"stage{number}.0.weight"], stride=stride, padding=1)
        moments = state[f"{key}.running_mean"], state[f"{key}.running_var"]
        h = F.relu(F.batch_norm(h, *moments, state[f"{key}.weight"], state[f"{key}.bias"]))
    expected = F.linear(h.mean(dim=(2, 3)), state["head.weight"], state["head.bias"])
    torch.testing.assert_close(model(x), expected, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(model(1 - x), expected, rtol=1e-3)


@pytest.mark.parametrize("channels", [1, 3])
def test_the_small_conv_net_is_small(channels: int) -> None:
    size = sum(p.numel() for p in build("small_conv", num_classes=10, in_channels=channels).parameters())
    assert 50_000 < size < 150_000
    half = sum(p.numel() for p in build("small_conv", num_classes=10, width=0.5).parameters())
    assert half < size / 3
