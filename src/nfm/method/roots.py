"""The root: the network itself, below the wrappers that trainers put around it."""

from __future__ import annotations

import functools
import weakref
from typing import Any

import torch
from torch import nn

from nfm.core.draw import Choice
from nfm.errors import AttachError
from nfm.method.hooks import ROOT, RootEntry, RootExit, apply_to_batch, check_fired
from nfm.method.inputs import mix_inputs
from nfm.method.revival import in_backward
from nfm.method.sites import Site
from nfm.method.sockets import Sockets, refuse_recomputation

_ATTACHED: weakref.WeakSet[nn.Module] = weakref.WeakSet()  # every module inside an attached network


def root_of(model: nn.Module) -> nn.Module:
    """Return the network below `torch.compile` and DistributedDataParallel."""
    if _is_distributed(type(model)):  # type: ignore[arg-type]  # a class can be hashed
        return root_of(model.module)  # type: ignore[arg-type]  # it is a module
    original = model.__dict__.get("_modules", {}).get("_orig_mod")
    return model if original is None else root_of(original)


@functools.lru_cache(maxsize=64)  # every step asks
def _is_distributed(kind: type) -> bool:
    """Tell whether these are modules that wrap another one to train it distributed; refuse what cannot be mixed."""
    if not issubclass(kind, nn.Module):
        raise AttachError(f"expected a torch.nn.Module, got {kind.__name__}")
    if issubclass(kind, nn.DataParallel):
        raise AttachError("nn.DataParallel is not supported: it mixes up its replicas' draws; use DDP")
    if issubclass(kind, torch.jit.ScriptModule):
        raise AttachError("expected a Python module, got a TorchScript module, whose forward takes no hooks")
    return issubclass(kind, nn.parallel.DistributedDataParallel)


def is_compiled(model: nn.Module) -> bool:
    """Tell whether `model`, one of its wrappers or a part of it was compiled."""
    found, seen = [model], {model}
    for module in found:  # by hand, because every step asks, and `model.modules()` takes longer
        if _compiled(module):
            return True
        new = [part for part in module._modules.values() if part is not None and part not in seen]
        seen.update(new)
        found += new
    return False


def _compiled(module: nn.Module) -> bool:
    return "_orig_mod" in module._modules or getattr(module, "_compiled_call_impl", None) is not None


def _ignores_hooks(model: nn.Module, root: nn.Module, site: Site) -> bool:
    """Tell whether the module of `site` may run in a graph that was compiled without this step's hooks."""
    if not is_compiled(model):
        return False
    if model is not root:
        return True
    module = root.get_submodule(site.module)
    return any(_compiled(part) and module in set(part.modules()) for part in root.modules())


def acts(root: nn.Module) -> bool:
    """Tell whether a forward pass of `root` is one of training."""
    return root.training and torch.is_grad_enabled()


def forward_mixed(
    model: nn.Module, root: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], choice: Choice, site: Site, *,
    batch: int,
) -> Any:  # fmt: skip
    """Run one forward pass in which `choice` acts at `site`; refuse one in which it did not act exactly once."""
    by_hand = model is root and not root._forward_pre_hooks  # of others, which see the input first
    if by_hand and site.module == ROOT and not _compiled(root):
        return _forward_mixed_inputs(root, args, kwargs, choice, site, batch)
    sockets = Sockets.of(root)
    if _ignores_hooks(model, root, site) and not (sockets.feed and site.name in sockets.sites):
        raise AttachError(
            f"{type(root).__name__} was compiled before the method was attached, and the compiler ignores "
            "later hooks; call nfm.attach(model, method) first, then torch.compile(model)"
        )
    let_go = sockets.hold({site.name: site}, root=not by_hand)
    try:
        with sockets.offer(choice):
            output = _run_by_hand(sockets, root, args, kwargs) if by_hand else model(*args, **kwargs)
    finally:
        let_go()
    check_fired(choice, batch)
    return output


def _forward_mixed_inputs(
    root: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], choice: Choice, site: Site, batch: int
) -> Any:
    """Run a root that is not attached on mixed inputs: nothing acts inside it, so that no hook is needed."""
    if in_backward() and acts(root) and not choice.forced:
        refuse_recomputation(root)
    apply = functools.partial(apply_to_batch, choice, batch)
    args, kwargs = mix_inputs(root, args, kwargs, site.inputs, apply)
    return root(*args, **kwargs)


def _run_by_hand(sockets: Sockets, root: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run `root` between what its two hooks do, without the time that it takes to put them in and out."""
    slot = sockets.slot
    RootEntry(sockets)(root, args, kwargs)
    slot.by_hand = True
    try:
        output = root(*args, **kwargs)
    finally:
        slot.by_hand = False
    RootExit(sockets)(root, args, output)
    return output


def forward_plain(model: nn.Module, *args: Any, **kwargs: Any) -> Any:
    """Run one forward pass in which nothing is mixed, whatever is attached to `model`."""
    with Sockets.of(root_of(model)).offer(None):
        return model(*args, **kwargs)


def register(root: nn.Module) -> Sockets:
    """Return new sockets for `root`; refuse a network that is attached to already, or is part of one."""
    holder = next((module for module in root.modules() if module in _ATTACHED), None)
    if holder is not None:
        raise AttachError(
            f"{type(root).__name__} is attached to already, or holds or is part of an attached network; "
            "call detach() on its mixer first"
        )
    _ATTACHED.update(root.modules())
    return Sockets.of(root)


def unregister(sockets: Sockets) -> None:
    """Forget an attached network, if it is still there."""
    for module in sockets.modules():
        _ATTACHED.discard(module)
