"""Find the block boundaries of an arbitrary network: places that everything passes through.

Blocks come in chains: siblings of one class, one after the other. The chain nearest to the root is taken. A
boundary must carry all that the output gets from the input; a place inside a residual branch does not.
"""

from __future__ import annotations

import warnings
from collections import defaultdict, deque
from collections.abc import Collection, Iterator

import torch.fx
from torch import nn

from nfm.method.sites import INPUT

ACTIVATIONS = (
    nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.PReLU, nn.ELU, nn.SELU, nn.CELU, nn.GELU, nn.SiLU, nn.Mish, nn.Tanh,
    nn.Sigmoid, nn.Softplus, nn.Hardswish,
)  # fmt: skip
_WHOLE = 0.9  # a sibling with this share of the parameters is no block but the whole chain


def find_sites(model: nn.Module) -> list[str]:
    """Propose sites for `model`: its input, if that can be mixed, and its block boundaries but the last.

    >>> find_sites(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2)))
    ['input', '1', '3']
    """
    candidates = _chain(model) or _layers(model)
    cuts = _cuts(model, set(candidates))
    if cuts is not None:
        candidates = [name for name in candidates if name in cuts]
    return ([] if _takes_tokens(model) else [INPUT]) + candidates


def _parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def _composite(module: nn.Module) -> bool:
    return any(True for _ in module.children()) and _parameters(module) > 0


def _levels(model: nn.Module) -> Iterator[list[tuple[str, nn.Module]]]:
    """Yield the modules level by level, from the root down."""
    level = [("", model)]
    while level:
        yield level
        level = [
            (f"{name}.{child_name}".lstrip("."), child)
            for name, module in level
            for child_name, child in module.named_children()
        ]


def _chain(model: nn.Module) -> list[str]:
    """Return the names of the chain of blocks nearest to the root, all but the last block."""
    for level in _levels(model):
        chains = [chain for name, module in level for chain in _chains_in(name, module)]
        if chains:
            longest = max(chains, key=lambda chain: sum(_parameters(module) for _, module in chain))
            return [name for name, _ in longest[:-1]]
    return []


def _chains_in(name: str, module: nn.Module) -> Iterator[list[tuple[str, nn.Module]]]:
    by_class: dict[type[nn.Module], list[tuple[str, nn.Module]]] = defaultdict(list)
    for child_name, child in module.named_children():
        if _composite(child) and not _chain_itself_only(child):
            by_class[type(child)].append((f"{name}.{child_name}".lstrip("."), child))
    for chain in by_class.values():
        sizes = [_parameters(child) for _, child in chain]
        if len(chain) > 1 and max(sizes) < _WHOLE * sum(sizes):
            yield chain


def _chain_itself_only(module: nn.Module) -> bool:
    """Tell whether `module` is a bare list, which is never called and so is no site."""
    return isinstance(module, nn.ModuleList | nn.ModuleDict)


def _layers(model: nn.Module) -> list[str]:
    """Return the activations of a network without blocks; without activations, its layers but the last."""
    leaves = [(name, module) for name, module in model.named_modules() if name and not any(module.children())]
    activations = [name for name, module in leaves if isinstance(module, ACTIVATIONS)]
    return activations or [name for name, module in leaves if _parameters(module)][:-1]


def _takes_tokens(model: nn.Module) -> bool:
    """Tell whether the first layer is an embedding: whole numbers come in, and cannot be mixed."""
    first = next((module for module in model.modules() if module._parameters), None)
    return isinstance(first, nn.Embedding | nn.EmbeddingBag)


class _Tracer(torch.fx.Tracer):
    """Trace a forward pass down to the candidates and no further."""

    def __init__(self, candidates: set[str]) -> None:
        super().__init__()
        self.candidates = candidates

    def is_leaf_module(self, module: nn.Module, qualified_name: str) -> bool:
        inside = any(name.startswith(f"{qualified_name}.") for name in self.candidates)
        return not inside


def _cuts(model: nn.Module, candidates: set[str]) -> set[str] | None:
    """Return the candidates that every path from input to output passes, or None if that cannot be traced."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            graph = _Tracer(candidates).trace(model)
    except Exception:  # whatever a foreign forward does with symbolic values
        return None
    calls = {node.target: node for node in graph.nodes if node.op == "call_module"}
    inputs = [node for node in graph.nodes if node.op == "placeholder"]
    for sources in (inputs, _without_masks(inputs)):
        cuts = {name for name in candidates if name in calls and not _bypassed(sources, calls[name])}
        if cuts:
            return cuts
    return set()


def _without_masks(inputs: list[torch.fx.Node]) -> list[torch.fx.Node]:
    """Return the first input and those others that go through a layer of their own.

    A mask goes beside the first input into every block; it leads around them all and carries nothing.
    """
    main = _reached(inputs[:1])
    own = [node for node in inputs[1:] if any(n.op == "call_module" for n in _reached([node], avoid=main))]
    return [*inputs[:1], *own]


def _reached(sources: list[torch.fx.Node], *, avoid: Collection[torch.fx.Node] = ()) -> set[torch.fx.Node]:
    """Return the nodes that depend on `sources`, those themselves included, not going through `avoid`."""
    seen = set(sources)
    queue = deque(sources)
    while queue:
        users = {user for user in queue.popleft().users if user not in avoid} - seen
        seen |= users
        queue.extend(users)
    return seen


def _bypassed(sources: list[torch.fx.Node], site: torch.fx.Node) -> bool:
    """Tell whether the output can be reached from one of `sources` without passing `site`."""
    return any(node.op == "output" for node in _reached(sources, avoid={site}))
