"""A choice hangs on the autograd node of the output it made: found by the loss, revived for its backward."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from nfm.core.draw import Choice
from nfm.core.structure import tensors_in
from nfm.errors import AttachError

if TYPE_CHECKING:
    from nfm.method.sockets import Slot, Sockets

moment = torch._C._autograd._get_sequence_nr  # the number of the next autograd node that this thread makes


_backward_pass = torch._C._current_graph_task_id  # the number of the one that this thread runs, -1 for none


def in_backward() -> bool:
    """Tell whether this thread runs a backward pass."""
    return _backward_pass() != -1


_saved_tensors_hooks = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", lambda _: True)


def may_run_again() -> bool:
    """Tell whether what runs now could be recomputed in a backward pass, as far as the running torch can tell.

    A checkpoint runs its part without gradients (reentrant), or with hooks on what is saved for the backward pass.
    """
    return not torch.is_grad_enabled() or _saved_tensors_hooks(True) is not None


def mark(output: Any, choice: Choice, batch: int, sockets: Sockets, *, revive_from: int | None) -> None:
    """Hang `choice` on the autograd nodes of `output`; have it revived when their backward runs.

    `revive_from` is the moment at which the forward pass began, None for one that no backward pass runs again.
    """
    for node in _nodes(output):
        if node.metadata.get(sockets, (None,))[0] is not choice:
            node.metadata[sockets] = (choice, batch)
            if revive_from is not None:
                made = range(revive_from, moment())
                node.register_prehook(Revival(sockets, choice, batch, made))


def find_mark(output: Any, sockets: Sockets) -> tuple[Choice, int] | None:
    """Return the choice and the batch size behind `output`: the nearest mark up its autograd graph."""
    queue = deque(_nodes(output))
    seen = set(queue)
    found: tuple[Choice, int] | None = None
    while queue:
        node = queue.popleft()
        mark = node.metadata.get(sockets)
        if mark is not None:
            if found is not None and found[0] is not mark[0]:
                raise AttachError(
                    "this output was made by two forward passes, each mixed in its own way; "
                    "take the loss of each of them and add the losses"
                )
            found = mark
            continue
        for parent, _ in node.next_functions:
            if parent is not None and parent not in seen:
                seen.add(parent)
                queue.append(parent)
    return found


def mark_all(output: Any, choice: Choice, batch: int, sockets: Sockets) -> None:
    """Mark every node of the (small) graph of a compiled forward pass, to know its other outputs by."""
    queue = deque(_nodes(output))
    while queue:
        node = queue.popleft()
        if sockets in node.metadata or not node.next_functions:  # parameters are shared between steps
            continue
        node.metadata[sockets] = (choice, batch)
        queue.extend(parent for parent, _ in node.next_functions if parent is not None)


def _nodes(output: Any) -> list[Any]:
    return [tensor.grad_fn for tensor in tensors_in(output) if tensor.grad_fn is not None]


class Revival:
    """A pre-hook of an autograd node: from there to the end of that backward pass its choice can act again.

    It acts where a node of its own forward pass is at work, so that another pass of the same network, mixed or plain,
    is recomputed as it was. `made` are the numbers of the nodes that the forward pass made.
    """

    def __init__(self, sockets: Sockets, choice: Choice, batch: int, made: range) -> None:
        self.sockets, self.choice, self.batch, self.made = sockets, choice, batch, made
        self.site = sockets.sites[choice.site]

    def __call__(self, grad_outputs: tuple[Tensor, ...]) -> None:
        slot = self.sockets.slot
        if not slot.revived:
            slot.outer = slot.active
        entry = (_backward_pass(), self)
        slot.revived.append(entry)
        slot.active, slot.batch = self.choice, self.batch
        let_go = self.sockets.hold({self.site.name: self.site})
        torch.autograd.Variable._execution_engine.queue_callback(_AfterBackward(slot, entry, let_go))


def recomputed(slot: Slot) -> Choice | None:
    """Return the choice of the forward pass that this backward pass recomputes now, None if it was a plain one."""
    here, at_work = _backward_pass(), torch._C._current_autograd_node()
    revivals = [revival for backward_pass, revival in slot.revived if backward_pass == here]
    if revivals and at_work is not None:  # else one inside a recomputation: whose it is, was found before
        number = at_work._sequence_nr()
        revival = next((each for each in reversed(revivals) if number in each.made), None)
        slot.active, slot.batch = (None, 0) if revival is None else (revival.choice, revival.batch)
    return slot.active


class _AfterBackward:
    """Ends a revival when its backward pass is over: called by the engine, or dropped by it on an error."""

    def __init__(self, slot: Slot, entry: tuple[int, Revival], let_go: Callable[[], None]) -> None:
        self.slot, self.entry, self.let_go = slot, entry, let_go
        self.over = False

    def __call__(self) -> None:
        if self.over:
            return
        self.over = True
        self.slot.revived.remove(self.entry)
        if not self.slot.revived:
            self.slot.active, self.slot.outer = self.slot.outer, None
        self.let_go()

    __del__ = __call__
