"""Noisy Feature Mixup: the class. Its special cases are the same class with other numbers (`presets.py`)."""

from __future__ import annotations

import copy
import dataclasses
import functools
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Literal, Self

import torch.nn.functional as F
from torch import Tensor, nn

from nfm.core.draw import Choice, Draw
from nfm.core.mixing import Criterion, mixed_loss
from nfm.core.noise import Noise
from nfm.core.receipts import Receipt
from nfm.core.weights import check_shape
from nfm.errors import UsageError
from nfm.method.ahead import Ahead, Laws, Settings
from nfm.method.dry_run import Plan, dry_run
from nfm.method.inputs import as_call, batch_size
from nfm.method.roots import acts, forward_mixed, forward_plain, root_of
from nfm.method.settings import check_switch
from nfm.method.sites import Site, resolve
from nfm.method.steps import Stepped, rank

NFM_NOISE = Noise(0.4, 0.2)  # the paper, Section 5: "across all models trained with NFM"
PER_BATCH, PER_SAMPLE = "batch", "sample"
_NOT_COPIED = ("_resolved", "_ahead", "_last_batch", "_last_receipt")


@dataclasses.dataclass(frozen=True, eq=False)
class Outcome:
    """What one training step made: the loss to go backward from, the network's output, and the draw."""

    loss: Tensor
    output: Any
    draw: Draw


class NoisyFeatureMixup(Stepped):
    """Train on noisy mixtures: at a random site, mix the batch with itself permuted and inject noise.

    `sites`: names or globs of the network's own modules, plus ``"input"``; None means the network's default.
    `alpha`, `beta`: the weight's law Beta(alpha, beta); `beta` None means alpha; alpha 0 mixes nothing and
    keeps the noise. `weights`: one a ``"batch"`` or one a ``"sample"``. `dominant`: max(weight, 1 - weight).
    `inputs`: which of several input tensors to mix, by the names of the network's arguments. Each draw is
    keyed by (seed, step, rank, site) and depends on nothing else.
    """

    kind: type[Choice] = Choice  # what it does at a site

    def __init__(
        self,
        sites: Sequence[str] | str | None = None,
        alpha: float = 1.0,
        beta: float | None = None,
        noise: Noise = NFM_NOISE,
        weights: Literal["batch", "sample"] = "batch",
        *,
        dominant: bool = False,
        inputs: Sequence[str] | str | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(seed)
        self.sites = _names("sites", sites)
        self.inputs = _names("inputs", inputs)
        self.alpha = check_shape("alpha", alpha, zero=True)
        self.beta = self.alpha if beta is None else check_shape("beta", beta, zero=False)
        if weights not in (PER_BATCH, PER_SAMPLE):
            raise UsageError(f"weights: expected {PER_BATCH!r} or {PER_SAMPLE!r}, got {weights!r}")
        if not isinstance(noise, Noise):
            raise UsageError(f"noise: expected nfm.Noise(add, mult), got {noise!r}")
        self.weights, self.noise = weights, noise
        self.dominant = check_switch("dominant", dominant)
        self._begin()

    def _begin(self) -> None:
        """Make what is not copied."""
        self._resolved: weakref.WeakKeyDictionary[nn.Module, dict[str, Site]] = weakref.WeakKeyDictionary()
        self._ahead = Ahead()
        self._last_batch: int | None = None  # its size
        self._last_receipt = Receipt()

    def __repr__(self) -> str:
        sites = "the network's default" if self.sites is None else ", ".join(self.sites)
        shapes = f"alpha={self.alpha:g}" + (f", beta={self.beta:g}" if self.beta != self.alpha else "")
        settings = [f"sites: {sites}", shapes, f"one weight a {self.weights}", repr(self.noise)]
        settings += ["dominant"] if self.dominant else []
        settings += [f"inputs: {', '.join(self.inputs)}"] if self.inputs else []
        return f"NoisyFeatureMixup({'; '.join(settings)}; seed={self.seed})"

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name not in _NOT_COPIED}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._begin()

    @property
    def idle(self) -> bool:
        """Tell whether this mixes nothing and adds no noise: each of its steps is a plain one."""
        return self.alpha == 0 and self.noise.silent

    def sites_of(self, model: nn.Module) -> dict[str, Site]:
        """Return the sites of `model` that this method mixes at, by name."""
        return self._sites_of_root(root_of(model))

    def _sites_of_root(self, root: nn.Module) -> dict[str, Site]:
        sites = self._resolved.get(root)
        if sites is None:
            sites = self._resolved[root] = resolve(root, self.sites, self.inputs)
        return sites

    def choose(self, sites: Sequence[str], step: int | None = None, *, batch: int | None = None) -> Choice:
        """Make the choice of `step` (default: the next one) among `sites`.

        Told the same size of the `batch` as the step before, it draws the pairings of the next steps too.
        """
        step = self.claim() if step is None else step
        known = batch is not None and batch == self._last_batch
        per_sample = self.weights == PER_SAMPLE
        laws = Laws(tuple(sites), self.seed, rank(), self.alpha, self.beta, per_sample, self.dominant)
        shape = self._last_receipt.shape if known and self.kind.by_shape else ()
        choice = self._ahead.take(
            step, Settings(laws, self.kind, self.noise, batch if known else None, shape)
        )
        self._last_batch, self._last_receipt = batch, choice.arguments.receipt
        return choice

    def __call__(
        self, model: nn.Module, x: Any, y: Any, *,
        criterion: Criterion = F.cross_entropy, step: int | None = None, draw: Draw | None = None,
    ) -> Outcome:  # fmt: skip
        """Run one forward pass of `model` on noisy mixtures of `x` and return its loss, output and draw.

        `x` is a tensor, a tuple of inputs or a mapping of them; `y` is a tensor or a structure of them with
        the batch in dim 0; `criterion(output, y)` is any loss. In evaluation mode or without gradients
        the network is the plain one. `draw` repeats an earlier draw, in any mode.
        """
        args, kwargs = as_call(x)
        size = batch_size(args, kwargs)
        root = root_of(model)
        earlier = None if draw is None else draw.choice
        if earlier is None and (draw is not None or not acts(root)):
            output, made = model(*args, **kwargs), Draw.plain(size)
            return Outcome(mixed_loss(criterion, output, y, made.pairing), output, made)
        sites = self._sites_of_root(root)
        if earlier is not None:
            choice = earlier.again(forced=True)
        else:
            step = self.claim() if step is None else step
            if self.idle:
                return _plain_step(model, x, y, criterion=criterion, step=step, site=next(iter(sites)))
            choice = self.choose(tuple(sites), step, batch=size)
        output = forward_mixed(model, root, args, kwargs, choice, sites[choice.site], batch=size)
        made = choice.draw(size)
        return Outcome(mixed_loss(criterion, output, y, made.pairing), output, made)

    def replay(self, draw: Draw) -> Callable[..., Outcome]:
        """Return this method with `draw` in place of a new one: the same mix for a teacher or another view.

        What it returns is called like the method itself, and mixes in every mode.
        """
        return functools.partial(self, draw=draw)

    def scaled(self, factor: float) -> Self:
        """Return the same method with both noise levels times `factor`."""
        other = copy.copy(self)
        noise = self.noise
        other.noise = dataclasses.replace(noise, add=factor * noise.add, mult=factor * noise.mult)
        other._resolved = self._resolved
        return other

    def check(self, model: nn.Module, x: Any) -> Plan:
        """Dry-run `model` on `x` and return the plan of its sites; refuse a bad one by name."""
        sites = self.sites_of(model)
        return dry_run(root_of(model), x, {} if self.idle else sites)


def _plain_step(model: nn.Module, x: Any, y: Any, *, criterion: Criterion, step: int, site: str) -> Outcome:
    """Run a step in which nothing is done; its draw keeps the step, for the parts of a sum to repeat theirs."""
    args, kwargs = as_call(x)
    output = forward_plain(model, *args, **kwargs)
    made = Draw.plain(batch_size(args, kwargs), site=site, step=step)
    return Outcome(mixed_loss(criterion, output, y, made.pairing), output, made)


def _names(field: str, value: Sequence[str] | str | None) -> tuple[str, ...] | None:
    names = (value,) if isinstance(value, str) else value
    usable = names is None or (isinstance(names, Sequence) and all(isinstance(name, str) for name in names))
    if not usable or (names is not None and not len(names)):
        raise UsageError(f"{field}: expected one or more names, such as 'input' or 'layer*', got {value!r}")
    return None if names is None else tuple(names)
