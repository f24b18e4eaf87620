"""From names to objects: the one place where a recipe's words become data, networks and methods."""

from __future__ import annotations

import dataclasses
from typing import Any

from torch import nn

from nfm.config.initial import take_weights
from nfm.config.schema import Config, DataConfig, Facts, MethodConfig, ModelConfig
from nfm.core.noise import Noise
from nfm.data import CropFlip, load
from nfm.data.augment import RandomResizedCrop
from nfm.data.autoaugment import AutoAugment
from nfm.data.cifar_files import AUTHORS_MEAN, AUTHORS_STD
from nfm.data.examples import Augment, DataSet
from nfm.errors import ConfigError, did_you_mean
from nfm.method.feature_mixup import NoisyFeatureMixup
from nfm.method.presets import PRESETS, preset
from nfm.models import build as build_network
from nfm.train.optim import freeze


@dataclasses.dataclass(frozen=True)
class Parts:
    """The objects of one run."""

    data: DataSet
    model: nn.Module
    method: NoisyFeatureMixup
    augment: Augment | None


def build_run(config: Config) -> Parts:
    """Return the objects that `config` names."""
    method = build_method(config.method, seed=config.train.seed)
    augment = build_augment(config.data)
    data = build_data(config.data)
    return Parts(data, build_model(config.model, facts_of(data), seed=config.train.seed), method, augment)


def build_data(config: DataConfig) -> DataSet:
    """Return the data set that `config` names."""
    return load(
        config.name, root=config.root or None, validation=config.validation, seed=config.seed,
        subset=config.subset or None, label_noise=config.label_noise, imbalance=config.imbalance,
        download=config.download,
    )  # fmt: skip


def facts_of(data: DataSet) -> Facts:
    """Return what a network must know of `data`."""
    return Facts(data.shape, data.classes, data.mean, data.std)


def build_model(config: ModelConfig, facts: Facts, *, seed: int) -> nn.Module:
    """Return the network that `config` names, for the shape, classes and normalisation of its data."""
    mean, std = {
        "data": (facts.mean, facts.std), "authors": (AUTHORS_MEAN, AUTHORS_STD), "none": (None, None),
    }[config.normalisation]  # fmt: skip
    channels, *size = facts.shape
    model = build_network(
        config.name, num_classes=len(facts.classes), in_channels=channels, mean=mean, std=std, seed=seed,
        image_size=size[-1] if size else None, **config.options,
    )  # fmt: skip
    if config.init_from:
        take_weights(model, config.init_from)
    freeze(model, config.freeze)
    return model


def build_method(config: MethodConfig, *, seed: int) -> NoisyFeatureMixup:
    """Return the method that `config` names."""
    settings: dict[str, Any] = {
        name: value
        for name, value in dataclasses.asdict(config).items()
        if name not in ("scheme", "noise") and value is not None
    }
    if config.noise:
        settings["noise"] = change_noise(PRESETS[config.scheme].noise, config.noise)
    return preset(config.scheme, seed=seed, **settings)


def change_noise(noise: Noise, changes: dict[str, Any]) -> Noise:
    """Return `noise` with some of its settings changed."""
    known = [field.name for field in dataclasses.fields(Noise)]
    for name in changes:
        if name not in known:
            raise ConfigError(
                f"unknown key 'method.noise.{name}'; known: {', '.join(known)}{did_you_mean(name, known)}"
            )
    return dataclasses.replace(noise, **changes)


def build_augment(config: DataConfig) -> Augment | None:
    """Return the augmentation that `config` names."""
    if config.augment == "none":
        return None
    if config.augment == "crop_flip":
        return CropFlip(pad=4)  # the paper's recipe (ledger, "Training recipes")
    if config.augment == "autoaugment":
        return AutoAugment()
    return RandomResizedCrop()
