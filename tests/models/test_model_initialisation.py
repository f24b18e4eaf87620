"""Weights come from the seed and the parameter's name, and from nothing else."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
import torch
from torch import nn

from nfm.errors import UsageError
from nfm.models import build, initialise

NAMES = ["preact_resnet18", "vit_lite_7_4", "mlp", "small_conv", "cifar_resnet20", "wrn40_2"]


def assert_same_state(first: nn.Module, second: nn.Module) -> None:
    one, two = first.state_dict(), second.state_dict()
    assert list(one) == list(two)
    assert [key for key in one if not torch.equal(one[key], two[key])] == []


@pytest.mark.parametrize("name", NAMES)
def test_the_same_seed_gives_the_same_bytes_whatever_was_drawn_before(name: str) -> None:
    first = build(name, num_classes=10, seed=5)
    torch.rand(13)
    assert_same_state(first, build(name, num_classes=10, seed=5))
    with pytest.raises(AssertionError):
        assert_same_state(first, build(name, num_classes=10, seed=6))


@pytest.mark.parametrize("name", NAMES)
def test_building_leaves_the_global_generators_alone(name: str) -> None:
    torch_state, numpy_state, python_state = torch.get_rng_state(), np.random.get_state(), random.getstate()  # noqa: NPY002
    initialise(build(name, num_classes=10), 3)
    assert torch.equal(torch_state, torch.get_rng_state())
    assert np.array_equal(numpy_state[1], np.random.get_state()[1])  # noqa: NPY002
    assert python_state == random.getstate()
    torch.rand(1)
    assert not torch.equal(torch_state, torch.get_rng_state())  # the comparison can fail


def test_a_parameter_depends_on_its_name_not_on_its_neighbours() -> None:
    ten, two = build("cifar_resnet20", num_classes=10), build("cifar_resnet20", num_classes=2)
    deeper = build("cifar_resnet32", num_classes=10)
    for other in (two, deeper):
        assert torch.equal(ten.stage2[1].conv1.weight, other.stage2[1].conv1.weight)
    assert not torch.equal(ten.stage2[1].conv1.weight, ten.stage2[1].conv2.weight)


def test_initialise_forgets_what_was_learnt(scramble, images) -> None:
    model = build("small_conv", num_classes=4, seed=1)
    fresh = build("small_conv", num_classes=4, seed=1)
    scramble(model)
    model.train()(images(4, 3, 8, 8))
    with pytest.raises(AssertionError):
        assert_same_state(model, fresh)
    initialise(model, 1)
    assert_same_state(model, fresh)


def test_memory_format_and_dtype_do_not_change_the_draw() -> None:
    plain = build("small_conv", num_classes=4, seed=1)
    last = build("small_conv", num_classes=4).to(memory_format=torch.channels_last)
    initialise(last, 1)
    assert_same_state(plain, last)
    half = build("small_conv", num_classes=4).to(torch.bfloat16)
    initialise(half, 1)
    assert_same_state(plain.to(torch.bfloat16), half)


def assert_deviation(weights: torch.Tensor, expected: float) -> None:
    """The deviation of n normal draws has a standard error of about expected / sqrt(2 n): allow five."""
    assert abs(weights.std().item() - expected) < 5 * expected / math.sqrt(2 * weights.numel())


def test_convolutions_are_he_normal_over_fan_out() -> None:
    weights = build("resnet18", num_classes=10, image_size=224).stage2[0].conv1.weight  # 64 -> 128 channels
    assert_deviation(weights, math.sqrt(2 / (9 * 128)))
    with pytest.raises(AssertionError):
        assert_deviation(weights, math.sqrt(2 / (9 * 64)))  # fan-in is another law


def test_pre_activation_networks_have_the_plain_law() -> None:
    weights = build("preact_resnet18", num_classes=10).stage2[0].conv1.weight
    assert weights.abs().max() <= 1 / math.sqrt(9 * 64)
    assert_deviation(weights, 1 / math.sqrt(3 * 9 * 64))
    with pytest.raises(AssertionError):
        assert_deviation(weights, math.sqrt(2 / (9 * 128)))


def test_linear_layers_are_uniform_over_fan_in() -> None:
    weights = build("mlp", num_classes=10).hidden2[0].weight  # 64 inputs
    assert weights.abs().max() <= 1 / 8
    assert_deviation(weights, (1 / 8) / math.sqrt(3))


def test_the_transformer_has_its_own_law() -> None:
    model = build("vit_lite_7_4", num_classes=10)
    assert_deviation(model.blocks[3].attention.qkv.weight, 0.02)
    assert_deviation(model.embed.positions, 0.2)
    assert not model.embed.class_token.any()
    assert not model.head.bias.any()


def test_a_layer_without_a_law_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match=r"'weight' of Embedding.*initial_law"):
        initialise(nn.Sequential(nn.Embedding(3, 4)), 0)
