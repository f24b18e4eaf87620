"""The hooks themselves: at the entry and the exit of the root, and at the output of a site's module.

They are objects whose copies are inert: a deep copy, a pickle or an averaged copy is a plain network. Inside a
compiled graph only what the compiler can trace is done; `torch.compiler.is_compiling` tells.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from nfm.core.draw import Choice
from nfm.core.operator import check_feature
from nfm.errors import SiteError
from nfm.method.inputs import batch_size, mix_inputs, positional_names
from nfm.method.revival import may_run_again, moment, recomputed
from nfm.method.sites import pick, put

if TYPE_CHECKING:
    from nfm.method.sockets import Slot, Sockets

ROOT = ""


def check_fired(choice: Choice, batch: int) -> None:
    """Refuse a forward pass in which the site of `choice` fired not exactly once, or not on the batch."""
    if choice.uses != 1:
        raise SiteError(
            f"expected site {choice.site!r} to fire exactly once a forward pass and loss, it fired "
            f"{choice.uses} times; method.check(model, x) lists what each site does (a compiled network "
            "needs a loss between two training forward passes)"
        )
    check_carries(choice, batch, choice.shape)


def check_carries(choice: Choice, batch: int, shape: Sequence[int]) -> None:
    """Refuse a feature that does not carry the batch in dim 0."""
    if not shape or shape[0] != batch:
        raise SiteError(
            f"site {choice.site!r} does not carry the batch: expected {batch} in dim 0, got shape {tuple(shape)}"
        )


def apply_to_batch(choice: Choice, batch: int, x: Tensor, stream: int) -> Tensor:
    """Let `choice` act on `x`, a feature of a batch; refuse one that cannot be mixed."""
    check_feature(x, choice.site)
    if not torch.compiler.is_compiling():  # a compiled graph would be made for this one batch size
        check_carries(choice, batch, x.shape)
    return choice.apply(x, stream)


class Inert:
    """What a copied hook becomes: it does nothing."""

    def __call__(self, *_: Any, **__: Any) -> None:
        return None


class _Hook:
    """A hook whose copies and pickles are inert."""

    def __init__(self, sockets: Sockets) -> None:
        self.sockets = sockets

    def __deepcopy__(self, memo: dict[int, Any]) -> Inert:
        return Inert()

    def __reduce__(self) -> tuple[type[Inert], tuple[()]]:
        return Inert, ()


class RootEntry(_Hook):
    def __init__(self, sockets: Sockets) -> None:
        super().__init__(sockets)
        self.names = positional_names(sockets.root)  # read here, because the compiler warns of caches

    def __call__(self, root: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        sockets = self.sockets
        slot = getattr(sockets.local, "slot", None)
        if slot is not None and slot.by_hand:
            return None
        recomputes = not torch.compiler.is_compiling() and sockets.enter()
        slot = getattr(sockets.local, "slot", None)
        if slot is None:
            return None
        if not recomputes:
            choice = slot.waiting
            acts = choice is not None and (choice.forced or (root.training and torch.is_grad_enabled()))
            slot.active, slot.repeatable = choice if acts else None, False
            if not torch.compiler.is_compiling():
                slot.began = moment()
        choice = recomputed(slot) if recomputes else slot.active
        if choice is None:
            return None
        slot.batch = batch_size(args, kwargs)
        site = sockets.sites[choice.site]
        if site.module != ROOT:
            return None
        return mix_inputs(
            root, args, kwargs, site.inputs, lambda x, stream: _apply(choice, slot, x, stream),
            positional=self.names,
        )  # fmt: skip


class RootExit(_Hook):
    def __call__(self, root: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        slot = getattr(self.sockets.local, "slot", None)
        if slot is None or slot.by_hand:
            return
        try:
            if not torch.compiler.is_compiling():
                self.sockets.leave(output)
        finally:
            if not slot.revived:
                slot.active = None


class SiteOutput(_Hook):
    def __init__(self, sockets: Sockets, module: str) -> None:
        super().__init__(sockets)
        self.module = module

    def __call__(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
        slot = getattr(self.sockets.local, "slot", None)
        if slot is None:
            return None
        choice = slot.active if torch.compiler.is_compiling() else self.sockets.acting(slot)
        if choice is None:
            return None
        site = self.sockets.sites[choice.site]
        if site.module != self.module:
            return None
        return put(output, site, _apply(choice, slot, pick(output, site)))


def _apply(choice: Choice, slot: Slot, x: Tensor, stream: int = 0) -> Tensor:
    if not torch.compiler.is_compiling():
        slot.repeatable = may_run_again()
    return apply_to_batch(choice, slot.batch, x, stream)
