"""The root: the network itself, below the wrappers that trainers put around it."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from nfm.core.draw import Choice
from nfm.errors import AttachError
from nfm.method.inputs import batch_size
from nfm.method.sites import Site
from nfm.method.sockets import Sockets, check_fired

_ATTACHED: weakref.WeakSet[nn.Module] = weakref.WeakSet()  # every module inside an attached network


def root_of(model: nn.Module) -> nn.Module:
    """Return the network below `torch.compile` and DistributedDataParallel."""
    if not isinstance(model, nn.Module):
        raise AttachError(f"expected a torch.nn.Module, got {type(model).__name__}")
    if isinstance(model, nn.DataParallel):
        raise AttachError("nn.DataParallel is not supported: it mixes up its replicas' draws; use DDP")
    if isinstance(model, torch.jit.ScriptModule):
        raise AttachError("expected a Python module, got a TorchScript module, whose forward takes no hooks")
    if isinstance(model, nn.parallel.DistributedDataParallel):
        return root_of(model.module)
    original = model.__dict__.get("_modules", {}).get("_orig_mod")
    return model if original is None else root_of(original)


def is_compiled(model: nn.Module) -> bool:
    """Tell whether `model`, one of its wrappers or a part of it was compiled."""
    found, seen = [model], {model}
    for module in found:  # by hand, because every step asks: a fifth of the time of `model.modules()`
        if "_orig_mod" in module._modules or getattr(module, "_compiled_call_impl", None) is not None:
            return True
        new = [part for part in module._modules.values() if part is not None and part not in seen]
        seen.update(new)
        found += new
    return False


def acts(root: nn.Module) -> bool:
    """Tell whether a forward pass of `root` is one of training."""
    return root.training and torch.is_grad_enabled()


@contextmanager
def sockets_for_call(root: nn.Module, site: dict[str, Site], *, compiled: bool) -> Iterator[Sockets]:
    """Hold the hooks of one forward pass, and no longer."""
    sockets = Sockets.of(root)
    if compiled and not (sockets.feed and site.keys() <= sockets.sites.keys()):
        raise AttachError(
            f"{type(root).__name__} was compiled before the method was attached, and the compiler ignores "
            "later hooks; call nfm.attach(model, method) first, then torch.compile(model)"
        )
    let_go = sockets.hold(site)
    try:
        yield sockets
    finally:
        let_go()


def forward_mixed(
    model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], choice: Choice, site: Site
) -> Any:
    """Run one forward pass in which `choice` acts at `site`; refuse one in which it did not act exactly once."""
    root = root_of(model)
    with (
        sockets_for_call(root, {site.name: site}, compiled=is_compiled(model)) as sockets,
        sockets.offer(choice),
    ):
        output = model(*args, **kwargs)
    check_fired(choice, batch_size(args, kwargs))
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
