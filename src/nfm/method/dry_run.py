"""A dry run: prove that each site fires once and carries the batch, and show what stands there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from nfm.core.operator import check_feature
from nfm.core.structure import map_tensors, tensors_in
from nfm.errors import ShapeError, SiteError
from nfm.method.inputs import as_call, batch_size, mix_inputs, positional_names
from nfm.method.sites import Site, pick, put

_TOLERANCE = 1e-3  # of the largest feature: what reordering a batch may change by rounding


@dataclass(frozen=True)
class PlanRow:
    """One site: the feature's shape, the parameters before and after it, whether a path leads around it."""

    site: str
    module: str
    shape: tuple[int, ...]
    parameters_before: int
    parameters_after: int
    bypassed: bool


@dataclass(frozen=True)
class Plan:
    """What a method will do inside a network; print it."""

    network: str
    rows: tuple[PlanRow, ...]

    def __str__(self) -> str:
        if not self.rows:
            return f"{self.network}: plain steps on the input as it is, nothing is mixed"
        head = ("site", "module", "shape", "parameters before", "after", "")
        body = [
            (row.site, row.module, "x".join(map(str, row.shape)), f"{row.parameters_before:,}",
             f"{row.parameters_after:,}", "a path leads around it" if row.bypassed else "")
            for row in self.rows
        ]  # fmt: skip
        widths = [max(map(len, column)) for column in zip(head, *body, strict=True)]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
                 for line in (head, *body)]  # fmt: skip
        return "\n".join([f"{self.network}: one of {len(self.rows)} sites a step", *lines])


def dry_run(root: nn.Module, x: Any, sites: dict[str, Site]) -> Plan:
    """Run `root` on `x` in evaluation mode and return the plan of `sites`; refuse a bad site by name.

    Without sites the network only has to run.
    """
    args, kwargs = as_call(x)
    size = batch_size(args, kwargs)
    with evaluation(root):
        seen = _observe(root, args, kwargs, sites, size)
        features, order = seen.features, seen.order
        if sites:
            _check_rows(root, args, kwargs, sites, seen, size)
        rows = tuple(
            _row(root, site, features[site.name], order, _is_bypassed(root, args, kwargs, site))
            for site in sites.values()
        )
    return Plan(type(root).__name__, rows)


@contextmanager
def evaluation(root: nn.Module) -> Iterator[None]:
    """Switch to evaluation mode, where a forward pass changes nothing, and back, module by module.

    Gradients stay on: without them some modules take fast paths that skip their parts.
    """
    modes = [(module, module.training) for module in root.modules()]
    root.eval()
    try:
        with torch.enable_grad():
            yield
    finally:
        for module, mode in modes:
            module.training = mode


@contextmanager
def watching(root: nn.Module, site: Site, change: Any) -> Iterator[None]:
    """While inside, pass every feature of `site` through `change(feature)`."""
    if site.module:
        handle = root.get_submodule(site.module).register_forward_hook(
            lambda module, args, output: put(output, site, change(pick(output, site)))
        )
    else:
        names = positional_names(root)
        handle = root.register_forward_pre_hook(
            lambda module, args, kwargs: mix_inputs(
                root, args, kwargs, site.inputs, lambda h, _: change(h), positional=names
            ),
            with_kwargs=True,
        )
    try:
        yield
    finally:
        handle.remove()


@dataclass(frozen=True)
class _Seen:
    """The feature at each site, the output, and the names of modules and sites in call order."""

    features: dict[str, Tensor]
    output: Any
    order: list[str]


def _observe(
    root: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], sites: dict[str, Site], size: int
) -> _Seen:
    """Run the network once and return what was seen."""
    seen: dict[str, list[Tensor]] = {name: [] for name in sites}
    order: list[str] = []

    def keep(name: str) -> Any:
        def change(h: Tensor) -> Tensor:
            check_feature(h, name)
            if h.ndim == 0 or len(h) != size:
                raise SiteError(
                    f"site {name!r} does not carry the batch: expected {size} in dim 0, "
                    f"got shape {tuple(h.shape)}"
                )
            seen[name].append(h.detach())
            order.append(f"site {name}")
            return h

        return change

    with ExitStack() as stack:
        for name, module in root.named_modules():
            if module._parameters:
                handle = module.register_forward_hook(lambda *_, name=name: order.append(name))
                stack.callback(handle.remove)
        for site in sites.values():
            stack.enter_context(watching(root, site, keep(site.name)))
        output = root(*args, **kwargs)
    for name, found in seen.items():
        if len(found) != 1 and not (found and sites[name].inputs):
            raise SiteError(
                f"expected site {name!r} to fire exactly once a forward pass, it fired {len(found)} times; "
                "choose a place that every forward pass goes through once"
            )
    return _Seen({name: found[0] for name, found in seen.items()}, output, order)


def _check_rows(
    root: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], sites: dict[str, Site],
    seen: _Seen, size: int,
) -> None:  # fmt: skip
    """Refuse a site whose rows do not follow the batch: reorder the input, and the feature must follow."""

    def turned(value: Any) -> Any:
        return map_tensors(lambda t: t.flip(0) if t.ndim and len(t) == size else t, value)

    again = _observe(root, turned(args), turned(kwargs), sites, size)
    for name, feature in seen.features.items():
        if not torch.isfinite(feature).all():
            raise ShapeError(f"expected finite features at site {name!r}, got NaN or infinity")
        if not _follows(feature, again.features[name]):
            raise SiteError(
                f"site {name!r} does not carry the batch in dim 0 (shape {tuple(feature.shape)}): its rows "
                "do not follow the examples when these change places; turn time-first features batch-first"
            )
    outputs = list(zip(tensors_in(seen.output), tensors_in(again.output), strict=True))
    if not any(len(h) == size and _follows(h, turned_h) for h, turned_h in outputs if h.ndim):
        raise SiteError(
            f"the output of {type(root).__name__} does not carry the batch of {size} in dim 0, so labels "
            f"cannot be mixed alike (shapes: {[tuple(h.shape) for h, _ in outputs]}); "
            "turn time-first inputs batch-first"
        )


def _follows(feature: Tensor, turned: Tensor) -> bool:
    """Tell whether the rows of a feature changed places with the examples."""
    rounding = 4 * torch.finfo(feature.dtype).eps if feature.is_floating_point() else 0.0
    expected, found = feature.detach().double(), turned.detach().double().flip(0)
    return bool((found - expected).abs().max() <= max(_TOLERANCE, rounding) * expected.abs().max())


def _is_bypassed(root: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], site: Site) -> bool:
    """Tell whether the output still depends on the input when the feature of `site` is cut off."""
    if not site.module:
        return False

    def source(value: Any) -> Any:
        return map_tensors(lambda t: t.detach().requires_grad_() if t.is_floating_point() else t, value)

    frozen = [parameter for parameter in root.parameters() if parameter.requires_grad]
    with ExitStack() as stack:
        for parameter in frozen:
            parameter.requires_grad_(False)
            stack.callback(parameter.requires_grad_, True)
        for module in root.modules():
            if isinstance(module, nn.Embedding):
                handle = module.register_forward_hook(lambda m, a, out: out.detach().requires_grad_())
                stack.callback(handle.remove)
        stack.enter_context(watching(root, site, Tensor.detach))
        output = root(*source(args), **source(kwargs))
    return any(tensor.requires_grad for tensor in tensors_in(output))


def _row(root: nn.Module, site: Site, feature: Tensor, order: list[str], bypassed: bool) -> PlanRow:
    position = order.index(f"site {site.name}")
    done = {name for name in order[:position] if not name.startswith("site ")}
    counted = {
        name: sum(parameter.numel() for parameter in module._parameters.values() if parameter is not None)
        for name, module in root.named_modules()
    }
    before = sum(count for name, count in counted.items() if name in done)
    module = root.get_submodule(site.module) if site.module else root
    return PlanRow(
        site.name, type(module).__name__ if site.module else "-", tuple(feature.shape), before,
        sum(counted.values()) - before, bypassed,
    )  # fmt: skip
