"""The two-line form: attach once, then take the loss of whatever the network returns."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from nfm.core.draw import Choice, Draw
from nfm.core.mixing import Criterion, mixed_loss
from nfm.core.structure import tensors_in
from nfm.errors import AttachError, ShapeError, UsageError
from nfm.method.feature_mixup import NoisyFeatureMixup, Outcome
from nfm.method.hooks import check_fired
from nfm.method.revival import find_mark, mark_all
from nfm.method.roots import acts, is_compiled, register, root_of, unregister
from nfm.method.scheme import Method, mixings_of
from nfm.method.schemes import scheme
from nfm.method.sockets import Sockets

_SHAPE_CLASSES = 3  # the compiler's own: the first batch size, any other, and 1


class Mixer:
    """A method attached to a network: every training forward pass is mixed, and `loss` knows how.

    Usable as a context manager that detaches at its end.
    """

    def __init__(self, model: nn.Module, method: NoisyFeatureMixup) -> None:
        self.method = method
        root = root_of(model)
        if is_compiled(model):
            raise AttachError(
                f"{type(root).__name__} is compiled already, and the compiler ignores later hooks; "
                "call nfm.attach(model) first, then torch.compile(model)"
            )
        self.sites = method.sites_of(root)
        self._sockets = register(root)
        self._let_go = self._sockets.hold(self.sites)
        self._sockets.feed = self
        self._sockets.slot.waiting = self.peek()
        self._attached = True
        _allow_graphs(len(self.sites))

    def __repr__(self) -> str:
        state = "attached to" if self._attached else "detached from"
        return f"Mixer({state} {type(self.root).__name__} at {', '.join(self.sites)}; {self.method!r})"

    @property
    def root(self) -> nn.Module:
        """The network itself, without its wrappers; it is not kept alive by its mixer."""
        return self._sockets.root

    def peek(self) -> Choice | None:
        """Return the choice of the next step, None for a plain one."""
        return None if self.method.idle else self._choose(self.method.step)

    def claim(self, waiting: Choice | None) -> Choice | None:
        """Take the next step, for which `waiting` may have been made already."""
        step = self.method.claim()
        if self.method.idle:
            return None
        if waiting is not None and waiting.step == step and not waiting.uses:
            return waiting
        return self._choose(step)

    def _choose(self, step: int) -> Choice:
        batch = self._sockets.slot.batch or None  # as the last one had
        return self.method.choose(tuple(self.sites), step, batch=batch).ready()

    def loss(self, output: Any, y: Any, criterion: Criterion = F.cross_entropy) -> Tensor:
        """Return the loss of `output` for the labels `y`, mixed as the forward pass that made it was.

        `output` may be what the network returned or anything computed from it. What was made in evaluation
        mode or without gradients was not mixed and gets the plain loss. Call it as often as you like.
        """
        return mixed_loss(criterion, output, y, self.draw_of(output, y).pairing)

    def outcome(self, output: Any, y: Any, criterion: Criterion = F.cross_entropy) -> Outcome:
        """Return the loss together with the output and the draw behind it."""
        draw = self.draw_of(output, y)
        return Outcome(mixed_loss(criterion, output, y, draw.pairing), output, draw)

    def draw_of(self, output: Any, y: Any) -> Draw:
        """Return the draw of the forward pass that made `output`."""
        if not self._attached:
            raise AttachError("this mixer is detached; call nfm.attach(model) again")
        found = find_mark(output, self._sockets) or self._from_compiled(output)
        if found is not None:
            choice, size = found
            return choice.draw(size)
        trained = acts(self.root) and _is_trained(output)
        if trained and not self.method.idle:
            raise AttachError(
                f"this output met no mixing, though {type(self.root).__name__} is training: it was made "
                "before the mixer was attached, by a compiled wrapper that was called before that, by "
                "another network, inside one reentrant checkpoint, or in another mode; take the loss of "
                "model(x) itself, and attach before compiling (if a plain network of the same class was "
                "compiled before, its graph is taken: call torch.compiler.reset() after attaching)"
            )
        first = next(tensors_in(y), None)
        if first is None:
            raise ShapeError(f"expected labels with the batch in dim 0, got {type(y).__name__}")
        return Draw.plain(len(first), site=next(iter(self.sites)) if trained else "none")

    def _from_compiled(self, output: Any) -> tuple[Choice, int] | None:
        """Return the waiting choice if a compiled forward pass, which leaves no mark, has used it."""
        slot = self._sockets.slot
        choice = slot.waiting
        if choice is None or not choice.uses or not (acts(self.root) and _is_trained(output)):
            return None
        if self.method.claim() != choice.step:
            raise AttachError("the method's step was changed from outside; use mixer.load_state_dict(state)")
        slot.waiting = self.peek()
        check_fired(choice, slot.batch)
        mark_all(output, choice, slot.batch, self._sockets)
        return choice, slot.batch

    @contextmanager
    def replay(self, draw: Draw) -> Iterator[None]:
        """Let the forward pass in this block repeat `draw`, in any mode."""
        if draw.choice is None and not self.method.idle:
            raise UsageError("expected a draw of a mixed forward pass to replay, got a plain one")
        with self._sockets.offer(draw.choice and draw.choice.again(forced=True)):
            yield

    def state_dict(self) -> dict[str, int]:
        """Return what a resumed run needs."""
        return self.method.state_dict()

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go on from a state of `state_dict`."""
        self.method.load_state_dict(state)
        self._sockets.slot.waiting = self.peek()

    def detach(self) -> None:
        """Remove every hook; the network is as it was before."""
        if not self._attached:
            return
        self._attached = False
        self._let_go()
        self._sockets.feed = None
        unregister(self._sockets)

    def __enter__(self) -> Mixer:
        return self

    def __exit__(self, *_: object) -> None:
        self.detach()


def attach(model: nn.Module, method: Method | str = "nfm", **settings: Any) -> Mixer:
    """Attach a method (or a scheme by name, with `settings` of your own) to `model` for good.

    Attach before `torch.compile`; before or after wrapping in DistributedDataParallel.
    """
    if isinstance(method, str):
        method = scheme(method, **settings)
    elif settings:
        raise UsageError(
            f"expected settings with a preset's name only, got {', '.join(settings)} beside a method"
        )
    if not isinstance(method, NoisyFeatureMixup):
        raise UsageError(
            f"expected a scheme that acts inside one forward pass to attach, got {method!r}; it does more: call it "
            "(outcome = scheme(model, x, y))"
        )
    return Mixer(model, method)


@contextmanager
def ready_to_compile(model: nn.Module, method: Any) -> Iterator[None]:
    """While inside, hold every hook that a scheme will need: the compiler ignores those that come later."""
    root = root_of(model)
    with ExitStack() as stack:
        for index, mixing in enumerate(mixings_of(method)):
            if index == 0:
                stack.enter_context(Mixer(root, mixing))
            else:
                stack.callback(Sockets.of(root).hold(mixing.sites_of(root)))
        yield


def _is_trained(output: Any) -> bool:
    """Tell whether a gradient could flow back from `output`."""
    return any(tensor.requires_grad for tensor in tensors_in(output))


def _allow_graphs(sites: int) -> None:
    """Let the compiler keep one graph a site and plain mode for each class of shapes; its limit is 8."""
    import torch._dynamo.config as dynamo

    name = "recompile_limit" if hasattr(dynamo, "recompile_limit") else "cache_size_limit"
    setattr(dynamo, name, max(getattr(dynamo, name), _SHAPE_CLASSES * (sites + 4)))
