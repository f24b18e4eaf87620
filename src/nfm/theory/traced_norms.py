"""How far functions and methods of a traced graph carry a movement of their arguments."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
import torch.fx
from numpy.typing import NDArray
from torch import Tensor, nn

from nfm.errors import UsageError
from nfm.theory import operator_norms as norms

Reach = NDArray[np.float64]  # how far a node can move when a source moves by 1, for each source

SAME_SIZE = {
    "flatten", "view", "reshape", "contiguous", "permute", "transpose", "squeeze", "unsqueeze",
    "size", "getattr", "clone", "chunk", "split",
}  # fmt: skip
SUMS = {"add", "iadd", "add_", "sub", "isub", "sub_"}
SCALES = {"mul", "imul", "mul_", "truediv", "div", "div_"}
ACTIVATIONS: dict[str, nn.Module] = {
    "relu": nn.ReLU(), "relu_": nn.ReLU(), "relu6": nn.ReLU6(), "tanh": nn.Tanh(), "sigmoid": nn.Sigmoid(),
    "gelu": nn.GELU(), "silu": nn.SiLU(), "hardswish": nn.Hardswish(), "softplus": nn.Softplus(),
}  # fmt: skip


def call_reach(
    node: torch.fx.Node, values: Mapping[str, Any], reaches: Mapping[str, Reach], result: Any
) -> Reach:
    """Return the reach of a call; `values` and `reaches` are those of its arguments by name."""
    name = _name(node)
    parts = [_spread(values[argument], result) * reaches[argument] for argument in _arguments(node)]
    total = np.sum(parts, axis=0)
    if not isinstance(result, Tensor | tuple | list) or isinstance(result, torch.Size):
        return np.zeros_like(total)  # a shape or a number
    if name in SAME_SIZE or (name == "dropout" and not _trains(node)) or (name == "getitem" and _cuts(node)):
        return total
    if name in SUMS and "alpha" not in node.kwargs:
        return total
    if name in ACTIVATIONS and len(node.args) == 1:
        return (norms.activation_slope(ACTIVATIONS[name]) or 1.0) * total
    if name in SCALES:
        return total * _factor(node, values, reaches)
    if name in ("mean", "adaptive_avg_pool2d") and isinstance(result, Tensor):
        return total * norms.mean_norm(_first(node, values).shape, result.shape)
    if name in ("cat", "concat"):
        return joined(reaches[argument] for argument in _arguments(node))
    raise UsageError(
        f"no rigorous Lipschitz bound: the operation {name!r} is not known to this package; the empirical one remains"
    )


def _arguments(node: torch.fx.Node) -> list[str]:
    """Return the nodes that a call takes, by name; one that is taken twice is there twice."""
    found: list[str] = []
    torch.fx.node.map_arg((node.args, node.kwargs), lambda argument: found.append(argument.name))
    return found


def _spread(value: Any, result: Any) -> float:
    """Return how much broadcasting a value to the shape of the result stretches it."""
    if not isinstance(value, Tensor) or not isinstance(result, Tensor):
        return 1.0
    return math.sqrt(max(1.0, result.numel() / value.numel()))


def _cuts(node: torch.fx.Node) -> bool:
    """Tell whether an index is made of numbers and slices, which take no value twice."""
    index = node.args[1] if isinstance(node.args[1], tuple) else (node.args[1],)
    return all(part is None or part is Ellipsis or isinstance(part, int | slice) for part in index)


def _trains(node: torch.fx.Node) -> bool:
    """Tell whether a dropout is on even in evaluation mode, as it is by default."""
    return bool(node.kwargs.get("training", node.args[2] if len(node.args) > 2 else True))


def joined(reaches: Iterable[Reach]) -> Reach:
    """Return the reach of features put side by side."""
    return np.sqrt(np.sum([reach**2 for reach in reaches], axis=0))


def _name(node: torch.fx.Node) -> str:
    return (
        str(node.target) if node.op == "call_method" else getattr(node.target, "__name__", str(node.target))
    )


def _first(node: torch.fx.Node, values: Mapping[str, Any]) -> Tensor:
    return values[node.all_input_nodes[0].name]


def _factor(node: torch.fx.Node, values: Mapping[str, Any], reaches: Mapping[str, Reach]) -> float:
    """Return the greatest factor of a product with a constant, or of a quotient by one."""
    divides = "div" in _name(node)
    moving = [a for a in node.args if isinstance(a, torch.fx.Node) and reaches[a.name].any()]
    if len(moving) != 1 or (divides and moving[0] is not node.args[0]):
        raise UsageError(
            "no rigorous Lipschitz bound: a product or quotient of two features; the empirical one remains"
        )
    (constant,) = (a for a in node.args[:2] if a is not moving[0])
    value = torch.as_tensor(
        values[constant.name] if isinstance(constant, torch.fx.Node) else constant
    ).double()
    return float((1 / value if divides else value).abs().max())
