"""The call shape of every scheme: ``outcome = scheme(model, x, y)``."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Protocol

import torch.nn.functional as F
from torch import nn

from nfm.core.draw import Draw
from nfm.core.mixing import Criterion
from nfm.method.dry_run import Plan, dry_run
from nfm.method.feature_mixup import NoisyFeatureMixup, Outcome
from nfm.method.inputs import as_call, batch_size
from nfm.method.roots import acts, forward_plain, root_of
from nfm.method.sites import INPUT, resolve
from nfm.method.steps import Stepped


class Method(Protocol):
    """What can be trained by: a `NoisyFeatureMixup`, a `Scheme`, or a composition of them."""

    def __call__(
        self, model: nn.Module, x: Any, y: Any, *,
        criterion: Criterion = F.cross_entropy, step: int | None = None, draw: Draw | None = None,
    ) -> Outcome:  # fmt: skip
        """Run one training step up to its loss."""

    def check(self, model: nn.Module, x: Any) -> Plan:
        """Refuse a network or a batch that cannot be trained so."""


class Scheme(Stepped):
    """A scheme that does more than act at one site of one forward pass. A subclass writes `train`."""

    def __call__(
        self, model: nn.Module, x: Any, y: Any, *,
        criterion: Criterion = F.cross_entropy, step: int | None = None, draw: Draw | None = None,
    ) -> Outcome:  # fmt: skip
        """Run one training step of `model` on `x` up to its loss; the caller goes backward from it.

        In evaluation mode or without gradients, network and loss are the plain ones. `draw` repeats the step of
        an earlier draw, in any mode.
        """
        if draw is not None:
            step = draw.step
        elif not acts(root_of(model)):
            step = PLAIN
        elif step is None:
            step = self.claim()
        if step <= PLAIN:
            return plain_outcome(model, x, y, criterion=criterion)
        return self.train(model, x, y, criterion=criterion, step=step, draw=draw)

    def train(
        self, model: nn.Module, x: Any, y: Any, *, criterion: Criterion, step: int, draw: Draw | None
    ) -> Outcome:
        """Run `step`; with a `draw`, repeat it."""
        raise NotImplementedError

    def check(self, model: nn.Module, x: Any) -> Plan:
        """Dry-run `model` on `x` and return the plan; refuse what this scheme cannot train."""
        root = root_of(model)
        return dry_run(root, x, resolve(root, (INPUT,)))

    def replay(self, draw: Draw) -> Callable[..., Outcome]:
        """Return this scheme with the step of `draw` in place of the next one; it acts in every mode."""
        return functools.partial(self, draw=draw)

    @property
    def parts(self) -> tuple[Any, ...]:
        """The methods that this scheme is made of."""
        return ()

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go on from a state of `state_dict`; a part that shares this scheme's seed goes on sharing it."""
        sharing = [part for part in self.parts if getattr(part, "seed", None) == self.seed]
        super().load_state_dict(state)
        for part in sharing:
            part.load_state_dict(state)


PLAIN = -1  # the step of a draw in which nothing was done (`Draw.plain`)


def mixings_of(method: Any) -> tuple[NoisyFeatureMixup, ...]:
    """Return the methods that act at sites: those whose hooks the compiler must see."""
    if isinstance(method, NoisyFeatureMixup):
        return (method,)
    return tuple(mixing for part in getattr(method, "parts", ()) for mixing in mixings_of(part))


def plain_outcome(model: nn.Module, x: Any, y: Any, *, criterion: Criterion) -> Outcome:
    """Return the outcome of a plain forward pass and the plain loss."""
    args, kwargs = as_call(x)
    output = forward_plain(model, *args, **kwargs)
    return Outcome(criterion(output, y), output, Draw.plain(batch_size(args, kwargs)))
