"""`build`: names, options, refusals, and what every registered network promises."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from nfm.errors import UsageError
from nfm.models import MODELS, Network, build, known_options

NAMES = list(MODELS)
LIGHT = [name for name in NAMES if name not in ("wrn28_10", "preact_resnet34", "preact_resnet50", "resnet50")]
SITES = {
    "preact_resnet": ("input", "stage1", "stage2", "stage3"),
    "wrn": ("input", "stage1", "stage2"),
    "resnet": ("input", "stage1", "stage2", "stage3"),
    "cifar_resnet": ("input", "stage1", "stage2"),
    "vit_lite": ("input", "blocks.0", "blocks.1", "blocks.2"),
    "mlp": ("input", "hidden1", "hidden2", "hidden3"),
    "small_conv": ("input", "stage1", "stage2"),
}


def fired_sites(model: Network, x: torch.Tensor) -> list[tuple[str, torch.Size]]:
    """Return each default site, in the order in which it fired, with the shape it carried."""
    fired: list[tuple[str, torch.Size]] = []
    for site in model.default_sites:
        module = model.get_submodule(model.input_site if site == "input" else site)
        module.register_forward_hook(lambda _m, _i, h, site=site: fired.append((site, h.shape)))
    assert model(x).shape == (len(x), model.head.out_features)
    return fired


def test_the_promised_names_are_there() -> None:
    promised = {f"preact_resnet{depth}" for depth in (18, 34, 50)}
    promised |= {f"cifar_resnet{depth}" for depth in (20, 32, 44, 56)} | {"resnet18", "resnet50"}
    assert promised | {"wrn28_10", "wrn40_2", "vit_lite_7_4", "mlp", "small_conv"} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_network_keeps_the_contract(name: str, images) -> None:
    model = build(name, num_classes=7, mean=(0.5, 0.4, 0.3), std=(0.2, 0.2, 0.1))
    assert next(iter(model.named_children()))[0] == "normalise"
    assert isinstance(model.head, nn.Linear)
    assert model.head.out_features == 7
    family = max((prefix for prefix in SITES if name.startswith(prefix)), key=len)
    assert model.default_sites == SITES[family]
    x = images(2, 3, 32, 32)
    with torch.no_grad():
        fired = fired_sites(model.eval(), x)
    assert tuple(site for site, _ in fired) == model.default_sites
    assert all(shape[0] == 2 for _, shape in fired)
    assert fired[0][1] == x.shape


@pytest.mark.parametrize("name", NAMES)
def test_every_option_is_taken_with_its_own_default(name: str) -> None:
    options = known_options(name)
    plain, explicit = build(name, num_classes=3), build(name, num_classes=3, **options)
    assert list(plain.state_dict()) == list(explicit.state_dict())


@pytest.mark.parametrize("name", LIGHT)
def test_channels_last_gives_the_same_output_and_stays_channels_last(name: str, images) -> None:
    model = build(name, num_classes=5).eval()
    x = images(2, 3, 32, 32)
    with torch.no_grad():
        plain = model(x)
        model.to(memory_format=torch.channels_last)
        formats: list[bool] = []
        for site, child in model.named_children():
            if site.startswith("stage"):
                child.register_forward_hook(
                    lambda _m, _i, h: formats.append(h.is_contiguous(memory_format=torch.channels_last))
                )
        torch.testing.assert_close(
            model(x.to(memory_format=torch.channels_last)), plain, rtol=1e-4, atol=1e-5
        )
        assert not torch.allclose(model(1 - x), plain, rtol=1e-4, atol=1e-5)
    assert all(formats)


@pytest.mark.parametrize("name", ["preact_resnet18", "small_conv", "mlp", "vit_lite_7_4"])
def test_gradients_reach_every_parameter(name: str, images) -> None:
    model = build(name, num_classes=5, in_channels=1, image_size=8)
    model(images(4, 1, 8, 8)).square().sum().backward()
    lost = [key for key, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
    assert not lost


def test_normalisation_is_the_first_thing_done_and_part_of_the_state(images) -> None:
    mean, std = (0.5, 0.4, 0.3), (0.2, 0.25, 0.1)
    plain = build("small_conv", num_classes=4).eval()
    owner = build("small_conv", num_classes=4, mean=mean, std=std).eval()
    x = images(3, 3, 16, 16)
    by_hand = torch.stack([(x[:, c] - mean[c]) / std[c] for c in range(3)], dim=1)
    torch.testing.assert_close(owner(x), plain(by_hand))
    assert not torch.allclose(owner(x), plain(x))
    assert plain.normalise(x) is x
    torch.testing.assert_close(owner.state_dict()["normalise.std"], torch.tensor(std))
    assert not any(key.startswith("normalise") for key, _ in owner.named_parameters())


def test_vectors_are_normalised_feature_by_feature(images) -> None:
    model = build("mlp", num_classes=2, in_channels=2, image_size=None, mean=(1.0, 2.0), std=(2.0, 4.0))
    torch.testing.assert_close(model.normalise(torch.tensor([[3.0, 6.0]])), torch.tensor([[1.0, 1.0]]))
    assert model(images(5, 2)).shape == (5, 2)


def test_a_copy_is_independent_and_keeps_its_sites() -> None:
    model = build("mlp", num_classes=2)
    twin = copy.deepcopy(model)
    nn.init.zeros_(twin.head.weight)
    assert twin.default_sites == model.default_sites
    assert model.head.weight.abs().sum() > 0


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("preact_resnet81", {}, ["unknown model", "preact_resnet18", "small_conv", "did you mean"]),
        ("small_conv", {"widht": 2.0}, ["no option 'widht'", "known: width", "did you mean 'width'"]),
        ("resnet50", {"width": 2.0}, ["no option 'width'", "known: none"]),
        ("preact_resnet18", {"authors_form": 1}, ["expected bool, got 1"]),
        ("preact_resnet18", {"width": True}, ["expected float, got True"]),
        ("preact_resnet18", {"width": "2"}, ["expected float, got '2'"]),
        ("preact_resnet18", {"width": -1.0}, ["width", "positive", "-1.0"]),
        ("preact_resnet18", {"width": float("nan")}, ["width", "positive", "nan"]),
        ("mlp", {"units": 2.5}, ["expected int, got 2.5"]),
        ("mlp", {"units": 0}, ["units", "at least 1"]),
        ("mlp", {"depth": 0}, ["depth", "at least 1"]),
        ("mlp", {"dropout": 1.0}, ["dropout", "1.0"]),
        ("wrn40_2", {"dropout": -0.1}, ["dropout", "-0.1"]),
        ("vit_lite_7_4", {"image_size": 30}, ["multiple of the patch, 4", "30"]),
        ("vit_lite_7_4", {"attention_dropout": 1.5}, ["attention_dropout", "1.5"]),
        ("vit_lite_7_4", {"stochastic_depth": 1.5}, ["stochastic_depth", "1.5"]),
        ("small_conv", {"num_classes": 0}, ["num_classes", "at least 1", "0"]),
        ("small_conv", {"in_channels": 0}, ["in_channels", "at least 1", "0"]),
        ("small_conv", {"image_size": -8}, ["image_size", "at least 1", "-8"]),
        ("small_conv", {"mean": (0.5,) * 3}, ["mean and std, or neither"]),
        ("small_conv", {"mean": (0.5,), "std": (1.0,)}, ["mean", "3 finite numbers", "(0.5,)"]),
        ("small_conv", {"mean": (0.5,) * 3, "std": (1.0, 0.0, 1.0)}, ["std", "3 positive numbers"]),
        ("small_conv", {"seed": -1}, ["seed", "-1"]),
        (
            "tim:resnet18",
            {},
            ["unknown model prefix 'tim'", "timm, torchvision, module", "did you mean 'timm'"],
        ),
    ],
)
def test_bad_requests_are_refused_with_what_is_known(name: str, arguments: dict, words: list[str]) -> None:
    with pytest.raises(UsageError) as refusal:
        build(name, **{"num_classes": 10, **arguments})
    assert all(word in str(refusal.value) for word in words), str(refusal.value)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "mlp"])
def test_networks_for_images_refuse_vectors(name: str) -> None:
    with pytest.raises(UsageError, match=f"{name} needs images.*mlp"):
        build(name, num_classes=2, in_channels=2, image_size=None)


@pytest.mark.parametrize("size", [8, 28, 32])
@pytest.mark.parametrize("name", ["small_conv", "preact_resnet18"])
def test_small_images_fit(name: str, size: int, images) -> None:
    model = build(name, num_classes=3, in_channels=1, image_size=size).eval()
    assert model(images(2, 1, size, size)).shape == (2, 3)
