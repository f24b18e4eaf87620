"""Sockets: the hooks that let a choice act inside a network, and nothing else.

One `Sockets` serves one root module. A choice waits in a per-thread slot until the root is entered; the root
decides there, once, whether it acts (training, with gradients on), and the site whose name it carries applies
it. After the forward pass the choice hangs on the output's autograd node: to be found by the loss, and to be
revived while *its* backward runs, so that recomputed activations see the same draw (`method/revival.py`).

The hooks are objects whose copies are inert: a deep copy, a pickle or an averaged copy is a plain network.
Inside a compiled graph only what the compiler can trace is done; `torch.compiler.is_compiling` tells.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from nfm.core.draw import Choice
from nfm.core.operator import check_feature
from nfm.errors import AttachError, SiteError
from nfm.method.inputs import batch_size, mix_inputs, positional_names
from nfm.method.revival import in_backward, mark, may_run_again
from nfm.method.sites import Site, pick, put

ROOT = ""
_LOCK = threading.RLock()  # hooks are put in and taken out by one thread at a time
_SOCKETS: weakref.WeakKeyDictionary[nn.Module, Sockets] = weakref.WeakKeyDictionary()


class Feed(Protocol):
    """Where an attached network's choices come from."""

    def peek(self) -> Choice | None:
        """Return the choice of the next step, None for a plain one."""

    def claim(self, waiting: Choice | None) -> Choice | None:
        """Take the next step, for which `waiting` may have been made already."""


class Slot:
    """One thread's state: the choice that waits for a forward pass, and the one that acts in it."""

    def __init__(self) -> None:
        self.waiting: Choice | None = None
        self.active: Choice | None = None
        self.offered = False  # `waiting` was given by hand, for one forward pass
        self.batch = 0
        self.repeatable = False  # `active` acted where a backward pass may run it again
        self.revivals = 0  # backward passes under way that brought `active` back
        self.outer: Choice | None = None  # what was active before the first of them


class Sockets:
    """The hooks of one root module, put in while somebody holds them."""

    def __init__(self, root: nn.Module) -> None:
        self._root = weakref.ref(root)
        self._modules: weakref.WeakValueDictionary[str, nn.Module] = weakref.WeakValueDictionary()
        self.sites: dict[str, Site] = {}
        self.feed: Feed | None = None  # of an attached network
        self.local = threading.local()  # a subclass of it is silently mis-traced by the compiler
        self._held: dict[str, int] = {}
        self._handles: dict[str, list[RemovableHandle]] = {}

    @classmethod
    def of(cls, root: nn.Module) -> Sockets:
        """Return the sockets of `root`; it has one for life."""
        with _LOCK:
            if root not in _SOCKETS:
                _SOCKETS[root] = cls(root)
            return _SOCKETS[root]

    @property
    def root(self) -> nn.Module:
        """Return the root module, which is alive while any forward pass runs."""
        root = self._root()
        if root is None:
            raise AttachError("the network is gone; keep a reference to it, its hooks do not")
        return root

    def modules(self) -> Iterator[nn.Module]:
        """Yield the root's modules, or nothing if it is gone."""
        root = self._root()
        yield from () if root is None else root.modules()

    @property
    def slot(self) -> Slot:
        """Return the slot of this thread."""
        slot = getattr(self.local, "slot", None)
        if slot is None:
            slot = self.local.slot = Slot()
        return slot

    def hold(self, sites: dict[str, Site]) -> Callable[[], None]:
        """Put in the hooks that `sites` need; return the function that lets go of them."""
        modules = {ROOT, *(site.module for site in sites.values())}
        with _LOCK:
            self._refuse_other_meanings(sites)
            self.sites |= sites
            for name in modules:
                if not self._held.get(name):
                    self._handles[name] = self._put_in(name)
                self._held[name] = self._held.get(name, 0) + 1

        def let_go() -> None:
            with _LOCK:
                for name in modules:
                    self._held[name] -= 1
                    if not self._held[name]:
                        for handle in self._handles.pop(name):
                            handle.remove()

        return let_go

    def _refuse_other_meanings(self, sites: dict[str, Site]) -> None:
        for name, site in sites.items():
            held = self.sites.get(name, site)
            if held != site and self._held.get(ROOT):
                raise AttachError(
                    f"site {name!r} is in use with the inputs {held.inputs} and was asked for with "
                    f"{site.inputs}; detach the other method first, or give both the same inputs"
                )

    def _put_in(self, name: str) -> list[RemovableHandle]:
        module = self._module(name)
        if module is None:
            return []
        if name != ROOT:
            return [module.register_forward_hook(_SiteOutput(self, name))]
        return [
            module.register_forward_pre_hook(_RootEntry(self), with_kwargs=True),
            module.register_forward_hook(_RootExit(self), always_call=True),
        ]

    def _module(self, name: str) -> nn.Module | None:
        """Return a module by name; a recomputed part may outlive the root, and then has no name any more."""
        root = self._root()
        if root is not None:
            self._modules[name] = root.get_submodule(name)
        return self._modules.get(name)

    @contextmanager
    def offer(self, choice: Choice | None) -> Iterator[None]:
        """Let `choice` wait for the forward pass of this block; None lets nothing act in it."""
        slot = self.slot
        before, slot.waiting, slot.offered = slot.waiting, choice, True
        try:
            yield
        finally:
            slot.waiting, slot.offered = before, False
            if not slot.revivals:
                slot.active = None  # an interrupt ends a forward pass without calling the root's exit

    def enter(self) -> bool:
        """Prepare an eager forward pass; tell whether it recomputes one whose choice is active again."""
        root, slot = self.root, self.slot
        if getattr(root, "_is_replica", False):
            raise AttachError("nn.DataParallel is not supported: it mixes up its replicas' draws; use DDP")
        acts = root.training and torch.is_grad_enabled()
        if in_backward():
            if slot.revivals:
                return True
            if acts and (slot.waiting or (self.feed and self.feed.peek())):
                raise AttachError(
                    f"{type(root).__name__} is recomputed in a backward pass whose forward was not mixed: "
                    "the whole network stands in one reentrant checkpoint; use use_reentrant=False, or "
                    "checkpoint its blocks"
                )
            return False
        if acts and self.feed and not slot.offered:
            slot.waiting = self.feed.claim(slot.waiting)
        return False

    def can_act(self, slot: Slot) -> bool:
        """Tell whether a forward pass is under way: an interrupted one leaves its choice behind."""
        return bool(slot.revivals or slot.offered or self.root.training)

    def leave(self, output: Any) -> None:
        """Close an eager forward pass: its site must have fired exactly once."""
        slot = self.slot
        choice = slot.active
        if slot.revivals or choice is None or output is None:
            return
        check_fired(choice, slot.batch)
        mark(output, choice, slot.batch, self, revive=slot.repeatable)
        if self.feed and not slot.offered:
            slot.waiting = self.feed.peek()  # a compiled forward pass could not make its own


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


class _RootEntry(_Hook):
    def __init__(self, sockets: Sockets) -> None:
        super().__init__(sockets)
        self.names = positional_names(sockets.root)  # read here, because the compiler warns of caches

    def __call__(self, root: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        sockets = self.sockets
        recomputes = not torch.compiler.is_compiling() and sockets.enter()
        slot = getattr(sockets.local, "slot", None)
        if slot is None:
            return None
        if not recomputes:
            choice = slot.waiting
            acts = choice is not None and (choice.forced or (root.training and torch.is_grad_enabled()))
            slot.active, slot.repeatable = choice if acts else None, False
        choice = slot.active
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


class _RootExit(_Hook):
    def __call__(self, root: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        slot = getattr(self.sockets.local, "slot", None)
        if slot is None:
            return
        try:
            if not torch.compiler.is_compiling():
                self.sockets.leave(output)
        finally:
            if not slot.revivals:
                slot.active = None


class _SiteOutput(_Hook):
    def __init__(self, sockets: Sockets, module: str) -> None:
        super().__init__(sockets)
        self.module = module

    def __call__(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
        slot = getattr(self.sockets.local, "slot", None)
        if slot is None or slot.active is None:
            return None
        choice = slot.active
        if not torch.compiler.is_compiling() and not self.sockets.can_act(slot):
            return None
        site = self.sockets.sites[choice.site]
        if site.module != self.module:
            return None
        return put(output, site, _apply(choice, slot, pick(output, site)))


def _apply(choice: Choice, slot: Slot, x: Tensor, stream: int = 0) -> Tensor:
    check_feature(x, f"site {choice.site!r}")
    if not torch.compiler.is_compiling():  # a compiled graph would be made for this one batch size
        check_carries(choice, slot.batch, x.shape)
        slot.repeatable = may_run_again()
    return choice.apply(x, stream)
