"""From names to objects: the one place where a recipe's words become data, networks and methods."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from torch import nn

from nfm.config.initial import published_options, take_weights
from nfm.config.schema import Config, DataConfig, Facts, MethodConfig, ModelConfig
from nfm.core.noise import Noise
from nfm.data import CropFlip, load
from nfm.data.augment import RandomResizedCrop
from nfm.data.autoaugment import AutoAugment
from nfm.data.cifar_files import AUTHORS_MEAN, AUTHORS_STD
from nfm.data.examples import Augment, DataSet
from nfm.errors import ConfigError, EnvironmentProblem, UsageError, did_you_mean
from nfm.method.scheme import Method
from nfm.method.schemes import default_noise, scheme
from nfm.models import build as build_network
from nfm.train.optim import freeze


@dataclasses.dataclass(frozen=True)
class Parts:
    """The objects of one run."""

    data: DataSet
    model: nn.Module
    method: Method
    augment: Augment | None


def build_run(config: Config) -> Parts:
    """Return the objects that `config` names."""
    build_method(config.method, seed=config.train.seed)  # refuse before the data is read
    build_augment(config.data)
    return build_parts(config, build_data(config.data))


def build_parts(config: Config, data: DataSet) -> Parts:
    """Return the objects that `config` names, with `data` that was read before."""
    epoch = config.train.accumulate * math.ceil(len(data.train) / config.train.batch_size)
    method = build_method(config.method, seed=config.train.seed, epoch=epoch)
    model = build_model(config.model, facts_of(data), seed=config.train.seed)
    return Parts(data, model, method, build_augment(config.data))


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
    if config.normalisation == "authors" and channels != len(AUTHORS_MEAN):
        raise UsageError(
            f"model.normalisation: 'authors' is for images of 3 channels, these have {channels}; use 'data'"
        )
    published = published_options(config.init_from, config.name)
    try:
        model = build_network(
            config.name, num_classes=len(facts.classes), in_channels=channels, mean=mean, std=std, seed=seed,
            image_size=size[-1] if size else None, **published, **config.options,
        )  # fmt: skip
    except OSError as error:  # of the hub that holds published weights
        raise EnvironmentProblem(f"cannot fetch the weights of {config.name}: {error}") from error
    if config.init_from and not published:
        take_weights(model, config.init_from)
    freeze(model, config.freeze)
    return model


def build_method(config: MethodConfig, *, seed: int, epoch: int = 1) -> Method:
    """Return the method that `config` names; `epoch` is the number of its calls in one."""
    names = ("sites", "alpha", "beta", "weights", "dominant")
    given = {name: getattr(config, name) for name in names}
    settings = {name: value for name, value in given.items() if value is not None} | config.options
    if config.noise:
        settings["noise"] = change_noise(default_noise(config.scheme), config.noise)
    start, end, ramp = (round(epoch * value) for value in (config.start, config.end, config.ramp))
    return scheme(config.scheme, seed=seed, start=start, end=end or None, ramp=ramp, **settings)


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
        return CropFlip(pad=4)  # the paper's recipe (docs/differences.md, row 14)
    if config.augment == "autoaugment":
        return AutoAugment()
    return RandomResizedCrop()
