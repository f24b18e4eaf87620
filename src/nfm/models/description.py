"""What a network looks like: stages, output shapes, parameters, default sites."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from nfm.models.third_party import ThirdParty


@dataclass(frozen=True)
class Stage:
    """One line of a description. `shape` includes the batch; `site` is the stage's name as a default site."""

    name: str
    shape: tuple[int, ...] | None
    parameters: int
    site: str | None


def describe(model: nn.Module, example: Tensor) -> list[Stage]:
    """Return the stages of `model` in order, with the shapes that `example` takes in one evaluation pass."""
    modules = dict(_stages(model))
    shapes = _output_shapes(model, modules, example)
    sites = {_module_of(site, model): site for site in getattr(model, "default_sites", ())}
    rows = [
        Stage(name, shapes.get(name), sum(p.numel() for p in module.parameters()), sites.get(name))
        for name, module in modules.items()
    ]
    loose = sum(p.numel() for p in model.parameters()) - sum(row.parameters for row in rows)
    return [*rows, Stage("(outside stages)", None, loose, None)] if loose else rows


def _module_of(site: str, model: nn.Module) -> str:
    return str(getattr(model, "input_site", site)) if site == "input" else site


def _stages(model: nn.Module, prefix: str = "") -> Iterator[tuple[str, nn.Module]]:
    for name, child in model.named_children():
        opened = isinstance(child, nn.ModuleList) or (isinstance(model, ThirdParty) and child is model.net)
        if opened:
            yield from _stages(child, f"{prefix}{name}.")
        elif not isinstance(child, nn.Identity):
            yield prefix + name, child


def _output_shapes(
    model: nn.Module, modules: dict[str, nn.Module], example: Tensor
) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {}
    hooks = [m.register_forward_hook(partial(_record, shapes, name)) for name, m in modules.items()]
    modes = [(module, module.training) for module in model.modules()]
    try:
        model.eval()
        with torch.no_grad():
            model(example)
    finally:
        for hook in hooks:
            hook.remove()
        for module, training in modes:
            module.training = training
    return shapes


def _record(shapes: dict[str, tuple[int, ...]], name: str, _module: nn.Module, _inputs: Any, h: Any) -> None:
    if isinstance(h, Tensor):
        shapes[name] = tuple(h.shape)


def format_description(rows: Sequence[Stage]) -> str:
    """Return the rows as a text table with a total; shapes without the batch."""
    lines = [("stage", "output", "parameters", "default site")]
    lines += [(row.name, _format_shape(row.shape), f"{row.parameters:,}", row.site or "") for row in rows]
    lines += [("total", "", f"{sum(row.parameters for row in rows):,}", "")]
    name, shape, count, _ = (max(len(line[column]) for line in lines) for column in range(4))
    return "\n".join(f"{a:<{name}}  {b:<{shape}}  {c:>{count}}  {d}".rstrip() for a, b, c, d in lines)


def _format_shape(shape: tuple[int, ...] | None) -> str:
    return "" if shape is None else " x ".join(map(str, shape[1:]))
