"""Sockets: the hooks that let a choice act inside a network, and nothing else.

One `Sockets` serves one root module. A choice waits in a per-thread slot until the root is entered; the root
decides there, once, whether it acts (training, with gradients on), and the site whose name it carries applies
it. After the forward pass the choice hangs on the output's autograd node: to be found by the loss, and to be
revived while *its* backward runs, so that recomputed activations see the same draw (`method/revival.py`).

The hooks are in `method/hooks.py`.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, Protocol

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from nfm.core.draw import Choice
from nfm.errors import AttachError
from nfm.method.hooks import ROOT, RootEntry, RootExit, SiteOutput, check_fired
from nfm.method.revival import Revival, in_backward, mark, recomputed
from nfm.method.sites import Site

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
        self.by_hand = (
            False  # what the root's hooks do is done around its call; they do nothing, if any are there
        )
        self.began = 0  # the moment at which this forward pass did
        self.repeatable = False  # `active` acted where a backward pass may run it again
        self.revived: list[tuple[int, Revival]] = []  # by the numbers of the backward passes under way
        self.outer: Choice | None = None  # what was active before the first of them


class Sockets:
    """The hooks of one root module, put in while somebody holds them."""

    def __init__(self, root: nn.Module) -> None:
        self._root = weakref.ref(root)
        self._modules: weakref.WeakValueDictionary[str, nn.Module] = weakref.WeakValueDictionary()
        self.sites: dict[str, Site] = {}
        self.feed: Feed | None = None  # of an attached network
        self.local = threading.local()  # a subclass of it is silently mis-traced by the compiler
        self._users = 0
        self._held: dict[str, int] = {}
        self._handles: dict[str, list[RemovableHandle]] = {}

    @classmethod
    def of(cls, root: nn.Module) -> Sockets:
        """Return the sockets of `root`; it has one for life."""
        with _LOCK:
            sockets = _SOCKETS.get(root)
            if sockets is None:
                sockets = _SOCKETS[root] = cls(root)
            return sockets

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

    def hold(self, sites: dict[str, Site], *, root: bool = True) -> Callable[[], None]:
        """Put in the hooks that `sites` need, those of the `root` too; return the function that lets go of them."""
        modules = {ROOT, *(site.module for site in sites.values())}
        if not root:
            modules.remove(ROOT)
        with _LOCK:
            self._refuse_other_meanings(sites)
            self.sites |= sites
            self._users += 1
            for name in modules:
                if not self._held.get(name):
                    self._handles[name] = self._put_in(name)
                self._held[name] = self._held.get(name, 0) + 1

        def let_go() -> None:
            with _LOCK:
                self._users -= 1
                for name in modules:
                    self._held[name] -= 1
                    if not self._held[name]:
                        for handle in self._handles.pop(name):
                            handle.remove()

        return let_go

    def _refuse_other_meanings(self, sites: dict[str, Site]) -> None:
        for name, site in sites.items():
            held = self.sites.get(name, site)
            if held != site and self._users:
                raise AttachError(
                    f"site {name!r} is in use with the inputs {held.inputs} and was asked for with "
                    f"{site.inputs}; detach the other method first, or give both the same inputs"
                )

    def _put_in(self, name: str) -> list[RemovableHandle]:
        module = self._module(name)
        if module is None:
            return []
        if name != ROOT:
            return [module.register_forward_hook(SiteOutput(self, name))]
        return [
            module.register_forward_pre_hook(RootEntry(self), with_kwargs=True),
            module.register_forward_hook(RootExit(self), always_call=True),
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
        before, slot.waiting, slot.offered = slot.waiting, choice and choice.ready(), True
        try:
            yield
        finally:
            slot.waiting, slot.offered = before, False
            if not slot.revived:
                slot.active = None  # an interrupt ends a forward pass without calling the root's exit

    def enter(self) -> bool:
        """Prepare an eager forward pass; tell whether it recomputes one whose choice is active again."""
        root, slot = self.root, self.slot
        if getattr(root, "_is_replica", False):
            raise AttachError("nn.DataParallel is not supported: it mixes up its replicas' draws; use DDP")
        acts = root.training and torch.is_grad_enabled()
        if in_backward():
            if slot.revived:
                return True
            if acts and (slot.waiting or (self.feed and not slot.offered and self.feed.peek())):
                refuse_recomputation(root)
            return False
        if acts and self.feed and not slot.offered:
            slot.waiting = self.feed.claim(slot.waiting)
        return False

    def acting(self, slot: Slot) -> Choice | None:
        """Return the choice that acts where this thread is; an interrupted forward pass leaves its own behind."""
        if slot.revived:
            return recomputed(slot)
        if slot.active is None:  # asked first: a part may outlive the root
            return None
        return slot.active if slot.offered or self.root.training else None

    def leave(self, output: Any) -> None:
        """Close an eager forward pass: its site must have fired exactly once."""
        slot = self.slot
        choice = slot.active
        if slot.revived or choice is None or output is None:
            return
        check_fired(choice, slot.batch)
        mark(output, choice, slot.batch, self, revive_from=slot.began if slot.repeatable else None)
        if self.feed and not slot.offered:
            slot.waiting = self.feed.peek()  # a compiled forward pass could not make its own


def refuse_recomputation(root: nn.Module) -> NoReturn:
    """Refuse to mix in a backward pass what its forward pass did not mix so."""
    raise AttachError(
        f"{type(root).__name__} is recomputed in a backward pass whose forward was not mixed: "
        "the whole network, or the step itself, stands in one checkpoint; checkpoint its blocks, or the network "
        "alone with use_reentrant=False"
    )
