"""A rigorous Lipschitz bound (l2) of a network, layer by layer along its traced graph.

Each node of the graph carries how far it can move when the source moves by 1: a layer multiplies by its norm, a
sum adds its terms up. Batch norm is folded into the layer before it. What is not known is refused, not guessed.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.fx
from torch import Tensor, nn

from nfm.errors import UsageError
from nfm.method.dry_run import evaluation
from nfm.models.network import Normalise
from nfm.theory import operator_norms as norms
from nfm.theory.traced_norms import Reach, call_reach, joined

AFFINE = (nn.Linear, nn.Conv2d)
NORMS = (nn.BatchNorm1d, nn.BatchNorm2d)


@dataclass(frozen=True)
class LipschitzBounds:
    """Bounds of ||f(a) - f(b)|| / ||a - b||: of the whole network, of the part up to a site and of the rest.

    `whole` may be less than before * after. Where a path leads around the site, only `whole` bounds the network.
    """

    whole: float
    before: float
    after: float
    bypassed: bool


def lipschitz(model: nn.Module, x: Tensor, *, site: str = "") -> LipschitzBounds:
    """Return bounds for all inputs shaped as x [n, ...]; `site` names a module, '' the input itself."""
    with torch.no_grad(), evaluation(model):
        tracer = _Tracer()
        graph = tracer.traced(model)
        if site and site not in tracer.ends:
            raise UsageError(f"no module {site!r} is called in {type(model).__name__}; expected one that is")
        start, end = (next(node for node in graph.nodes if node.op == op) for op in ("placeholder", "output"))
        place = tracer.ends[site] if site else start
        walk = _Walk(torch.fx.GraphModule(model, graph), place)
        walk.run(x[:2].clone())
    whole, after, around = walk.reach[end.name].tolist()
    return LipschitzBounds(whole, float(walk.reach[place.name][0]), after, bypassed=around > 0)


class _Tracer(torch.fx.Tracer):
    """Trace a forward pass; remember where each module ends, by its dotted name."""

    def __init__(self) -> None:
        super().__init__()
        self.ends: dict[str, torch.fx.Node] = {}

    def is_leaf_module(self, module: nn.Module, qualified_name: str) -> bool:
        return isinstance(module, Normalise) or super().is_leaf_module(module, qualified_name)

    def call_module(self, m: nn.Module, forward: Any, args: Any, kwargs: Any) -> Any:
        result = super().call_module(m, forward, args, kwargs)
        if isinstance(result, torch.fx.Proxy):
            self.ends[self.path_of_module(m)] = result.node
        return result

    def traced(self, model: nn.Module) -> torch.fx.Graph:
        """Return the graph of `model`, or say that it cannot be traced."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return self.trace(model)
        except Exception as error:  # whatever a foreign forward does with symbolic values
            raise UsageError(
                f"no rigorous Lipschitz bound of {type(model).__name__}: its forward pass cannot be traced "
                f"({type(error).__name__}: {error}); the empirical one remains"
            ) from error


class _Walk(torch.fx.Interpreter):
    """Run the graph once for its shapes, and carry the reach of each node along.

    A reach has three numbers: from the input, from the site, and from the input by ways around the site.
    """

    def __init__(self, module: torch.fx.GraphModule, site: torch.fx.Node) -> None:
        super().__init__(module, garbage_collect_values=False)
        self.extra_traceback = False  # an error of ours is told as it is
        self.site = site.name
        self.reach: dict[str, Reach] = {}

    def run_node(self, n: torch.fx.Node) -> Any:
        value = super().run_node(n)
        reach = np.array([1.0, 0.0, 1.0]) if n.op == "placeholder" else self._reach(n, value)
        if n.name == self.site:
            reach[1:] = 1.0, 0.0
        self.reach[n.name] = reach
        return value

    def _reach(self, node: torch.fx.Node, value: Any) -> Reach:
        reaches = {name.name: self.reach[name.name] for name in node.all_input_nodes}
        if not any(reach.any() for reach in reaches.values()):
            return np.zeros(3)  # a constant, whatever it is
        if node.op == "output":
            return joined(reaches.values())
        if node.op == "call_module":
            return self._layer_reach(node, value)
        return call_reach(node, {name.name: self.env[name] for name in node.all_input_nodes}, reaches, value)

    def _layer_reach(self, node: torch.fx.Node, value: Any) -> Reach:
        """Return the reach behind a layer; a batch norm takes the affine layer before it in."""
        layer, before = self._module(node), node.all_input_nodes[0]
        if isinstance(layer, NORMS):
            scale = norms.folded_scale(layer)
            if before.op == "call_module" and len(before.users) == 1 and before.name != self.site:
                affine = self._module(before)
                if isinstance(affine, AFFINE):
                    return (
                        self._affine_norm(affine, before, scale) * self.reach[before.all_input_nodes[0].name]
                    )
            return float(scale.abs().max()) * self.reach[before.name]
        if isinstance(layer, AFFINE):
            return self._affine_norm(layer, node, None) * self.reach[before.name]
        return norms.layer_norm(layer, self.env[before].shape, value) * self.reach[before.name]

    def _module(self, node: torch.fx.Node) -> nn.Module:
        return self.fetch_attr(str(node.target))

    def _affine_norm(self, layer: nn.Module, node: torch.fx.Node, scale: Tensor | None) -> float:
        weight = layer.weight.detach().double()  # type: ignore[operator]
        if scale is not None:
            weight = weight * scale.view(-1, *[1] * (weight.ndim - 1))
        if isinstance(layer, nn.Conv2d):
            height, width = self.env[node.all_input_nodes[0]].shape[-2:]
            return norms.convolution_norm(layer, weight, height, width)
        return norms.linear_norm(weight)
