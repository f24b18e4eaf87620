"""Networks of others, by prefix: `timm:NAME`, `torchvision:NAME`, `module:PACKAGE.MODULE:FACTORY`."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

from nfm.errors import UsageError, did_you_mean, need
from nfm.models.head import replace_head
from nfm.models.network import Network
from nfm.models.task import Task
from nfm.models.torchvision_compat import import_torchvision
from nfm.registry import Registry

Options = Mapping[str, Any]
Source = Callable[[str, Task, Options, int], nn.Module]
"""(name, task, options, seed) -> a network; its weights come from the global generator, seeded by `build`."""

SOURCES: Registry[Source] = Registry("model prefix")

LAYOUTS = (
    "layer1 layer2 layer3",
    "stages.0 stages.1 stages.2",
    "layers.0 layers.1 layers.2",
    "blocks.0 blocks.1 blocks.2",
)
"""Where usual networks have their first three stages or blocks: ResNet, ConvNeXt, Swin, ViT. Our choice."""


class ThirdParty(Network):
    """Normalisation, then the network of another library as `net`.

    Its default sites are those it names itself or, in a usual layout, the input and the first three stages.
    In another layout there are none: they must be named, since a guess would change the method.
    """

    def __init__(self, task: Task, net: nn.Module) -> None:
        super().__init__(task)
        self.net = net
        self.default_sites = _default_sites(net)

    def forward(self, x: Tensor) -> Tensor:
        return self.net(self.normalise(x))


def _default_sites(net: nn.Module) -> tuple[str, ...]:
    names = {name for name, _ in net.named_modules()}
    known = next((layout.split() for layout in LAYOUTS if names.issuperset(layout.split())), [])
    own = getattr(net, "default_sites", ("input", *known) if known else ())
    return tuple(site if site == "input" else f"net.{site}" for site in own)


@SOURCES.register("timm")
def from_timm(name: str, task: Task, options: Options, _seed: int) -> nn.Module:
    """Call `timm.create_model(name, num_classes=, in_chans=, **options)`."""
    import_torchvision(f"timm:{name}")  # timm imports it, and dies with it
    try:
        timm = importlib.import_module("timm")
    except (ImportError, RuntimeError) as error:
        raise need("timm", "zoo", f"timm:{name}", error) from error
    call = {"num_classes": task.num_classes, "in_chans": task.in_channels, **options}
    return _ask(f"timm:{name}", timm.create_model, name, **call)


@SOURCES.register("torchvision")
def from_torchvision(name: str, task: Task, options: Options, seed: int) -> nn.Module:
    """Call `torchvision.models.get_model(name, **options)`; with published weights, replace the head."""
    import_torchvision(f"torchvision:{name}")
    if task.in_channels != 3:
        raise UsageError(f"torchvision:{name} takes images of 3 channels, got in_channels={task.in_channels}")
    models = importlib.import_module("torchvision.models")
    if options.get("weights") is None:
        return _ask(f"torchvision:{name}", models.get_model, name, num_classes=task.num_classes, **options)
    net = _ask(f"torchvision:{name}", models.get_model, name, **options)
    replace_head(net, task.num_classes, seed=seed)
    return net


def _ask(where: str, factory: Callable[..., nn.Module], name: str, **call: Any) -> nn.Module:
    try:
        return factory(name, **call)
    except (RuntimeError, TypeError, ValueError) as error:
        raise UsageError(f"{where}: {error}") from error


@SOURCES.register("module")
def from_module(path: str, task: Task, options: Options, _seed: int) -> nn.Module:
    """Call FACTORY(num_classes=, **options), and in_channels=, image_size= where its signature names them."""
    factory = find_factory(path)
    parameters = inspect.signature(factory).parameters
    wanted = {"in_channels": task.in_channels, "image_size": task.image_size}
    call = {key: value for key, value in wanted.items() if key in parameters}
    call |= {"num_classes": task.num_classes, **options}
    try:
        inspect.signature(factory).bind(**call)
    except TypeError as error:
        known = ", ".join(parameters) or "nothing"
        raise UsageError(
            f"module:{path}: {error}; it takes: {known}; it is given: {', '.join(call)}"
        ) from None
    net = factory(**call)
    if not isinstance(net, nn.Module):
        raise UsageError(
            f"module:{path}: expected a factory of torch.nn.Module, it returned {type(net).__name__}"
        )
    return net


def find_factory(path: str) -> Callable[..., nn.Module]:
    """Return the object that `PACKAGE.MODULE:FACTORY` names."""
    module_name, _, name = path.partition(":")
    if not (module_name and name):
        raise UsageError(f"expected module:PACKAGE.MODULE:FACTORY, got 'module:{path}'")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise UsageError(
            f"module:{path}: cannot import {module_name!r}: {error}; is it on PYTHONPATH?"
        ) from error
    factory = getattr(module, name, None)
    if not callable(factory):
        public = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        known = ", ".join(public)
        raise UsageError(
            f"{module_name!r} has no factory {name!r}; it has: {known}{did_you_mean(name, public)}"
        )
    return factory
