"""`fit`: from a network, a method and data to a trained network, in one call. Each part is usable alone."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nfm.data.batches import Batches
from nfm.data.check import check_examples
from nfm.data.examples import Augment, DataSet, ExampleSet, to_unit
from nfm.data.splits import balanced_subset
from nfm.errors import EnvironmentProblem, UsageError
from nfm.method.attach import ready_to_compile
from nfm.randomness import fold
from nfm.results import Row
from nfm.train.ema import Average
from nfm.train.folder import RECIPE, RunFolder
from nfm.train.identity import identity_of, key_of
from nfm.train.loop import Loop
from nfm.train.optim import Optimizer
from nfm.train.progress import Progress, Silent, choose_progress
from nfm.train.ranks import Ranks
from nfm.train.schedule import Schedule
from nfm.train.settings import Settings
from nfm.train.state import Position, State
from nfm.train.step import Method, Stepper

PROBE = 256  # training examples, unmixed and unaugmented, that tell how training goes


@dataclass(frozen=True)
class Fit:
    """What a run made: its rows, its last and best validation accuracy, and where it is kept."""

    rows: list[Row]
    position: Position
    folder: Path | None
    resumed: bool


def fit(
    model: nn.Module,
    method: Method,
    data: DataSet,
    *,
    optimizer: Optimizer | torch.optim.Optimizer | None = None,
    schedule: Schedule | None = None,
    settings: Settings | None = None,
    augment: Augment | None = None,
    criterion: Callable[..., Tensor] | None = None,
    out: Path | str | None = None,
    resume: bool = False,
    overwrite: bool = False,
    ranks: Ranks | None = None,
    progress: Progress | None = None,
    recipe: Mapping[str, Any] | None = None,
    **numbers: Any,
) -> Fit:
    """Train `model` by `method` on `data`; `numbers` are settings by name (epochs=30, seed=1, ...).

    With `out`, rows and checkpoints go there, and `resume` goes on with what is there, bit for bit; `recipe`
    is kept beside them.
    Everything that can be refused is refused before anything is written.
    """
    settings = _settings(settings, numbers)
    optimizer, schedule, ranks = optimizer or Optimizer(), schedule or Schedule(), ranks or Ranks()
    folder = _folder(out, resume=resume, overwrite=overwrite)
    _check_data(model, method, data, augment)
    root = model.to(ranks.device)
    if settings.channels_last:  # before the optimizer looks at the parameters' layout
        root.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    built = optimizer.build(root) if isinstance(optimizer, Optimizer) else optimizer
    identity = identity_of(
        root, method, data, settings=settings, optimizer=optimizer, schedule=schedule, augment=augment,
        criterion=criterion, ranks=ranks,
    )  # fmt: skip
    ranks.agree("the run", identity)
    with ExitStack() as stack:
        stack.enter_context(_deterministic(settings.deterministic))
        forward = _wrap(root, method, settings, ranks, stack)
        loss = criterion or functools.partial(F.cross_entropy, label_smoothing=settings.label_smoothing)
        stepper = Stepper(forward, root, method, loss, built, settings, ranks)
        average = Average(root, settings.ema) if settings.ema else None
        state = State(root, built, stepper.scaler, average, Position())
        loop = Loop(
            state=state, stepper=stepper, schedule=schedule, settings=settings, ranks=ranks,
            train=_batches(data.train, settings, ranks, augment),
            probe=_plain(probe_of(data.train), settings, ranks),
            validation=_plain(data.validation, settings, ranks) if len(data.validation) else None,
            progress=(progress or choose_progress()) if ranks.first else Silent(), key=key_of(identity),
            folder=folder if ranks.first else None,
            checkpoints=folder.checkpoints if folder is not None else None,
        )  # fmt: skip
        if folder is not None:
            stack.callback(folder.close)
            kept = {**identity, RECIPE: dict(recipe or {})}
            ranks.first_does(functools.partial(folder.open, kept, resume=resume, overwrite=overwrite))
        resumed = loop.restore() if resume else False
        loop.run()
        return Fit(loop.rows, state.position, folder.path if folder is not None else None, resumed)


def _folder(out: Path | str | None, *, resume: bool, overwrite: bool) -> RunFolder | None:
    if resume and overwrite:
        raise UsageError(
            "expected resume or overwrite, got both: one goes on with a run, the other clears it"
        )
    if out is None and (resume or overwrite):
        raise UsageError("resume, overwrite: expected out, the folder of the run, with them; got none")
    return None if out is None else RunFolder(out)


def _settings(settings: Settings | None, numbers: Mapping[str, Any]) -> Settings:
    if settings is not None and numbers:
        raise UsageError(f"expected settings or numbers, got both: {', '.join(numbers)}")
    try:
        return settings or Settings(**numbers)
    except TypeError as error:
        raise UsageError(
            f"fit: {error}; known settings: {', '.join(Settings.__dataclass_fields__)}"
        ) from None


def _check_data(model: nn.Module, method: Method, data: DataSet, augment: Augment | None) -> None:
    """Refuse data that cannot be trained on, and an augmentation, network or method that does not fit it."""
    check_examples(data.train, data.num_classes)
    few = torch.arange(min(4, len(data.train)))
    data.train.fetch(few, augment=augment)
    if hasattr(method, "check"):
        device = next(model.parameters()).device
        method.check(model, to_unit(data.train.fetch(few)).to(device))
    head = [module for module in model.modules() if isinstance(module, nn.Linear)]
    if head and head[-1].out_features < data.num_classes:
        raise UsageError(
            f"expected a network with {data.num_classes} outputs for {data.name}, got {head[-1].out_features}"
        )


def _wrap(root: nn.Module, method: Method, settings: Settings, ranks: Ranks, stack: ExitStack) -> nn.Module:
    """Return what the forward pass calls: the network, compiled and distributed as the settings say."""
    forward = root
    if settings.sync_batch_norm:
        if ranks.device.type == "cpu":
            raise EnvironmentProblem("sync_batch_norm: torch has it for CUDA only; leave it off on a CPU")
        if ranks.world == 1:
            raise UsageError("sync_batch_norm: expected more than one process; start with torchrun")
        forward = root = nn.SyncBatchNorm.convert_sync_batchnorm(root)
    if settings.compile:
        stack.enter_context(ready_to_compile(root, method))
        forward = torch.compile(forward)  # type: ignore[assignment]
    if ranks.world > 1:
        devices = [ranks.device] if ranks.device.type == "cuda" else None
        forward = nn.parallel.DistributedDataParallel(forward, device_ids=devices)
        stack.callback(_let_go, forward)
    return forward


def _let_go(wrapped: nn.Module) -> None:
    """Free what holds on to the group of processes, while the group still stands.

    Were it the last to hold on, torch would wait for the group's threads with the interpreter locked, and one
    of them may wait for that lock: a process that never ends.
    """
    del wrapped.reducer, wrapped.logger


@contextmanager
def _deterministic(wanted: bool) -> Iterator[None]:
    """Ask torch for deterministic algorithms while inside."""
    if not wanted:
        yield
        return
    before = torch.are_deterministic_algorithms_enabled()
    only_warned = torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=only_warned)


def _batches(examples: Any, settings: Settings, ranks: Ranks, augment: Augment | None) -> Batches:
    return Batches(
        examples, batch_size=settings.batch_size, seed=settings.seed, augment=augment, rank=ranks.rank,
        world=ranks.world, workers=settings.workers,
    )  # fmt: skip


def probe_of(examples: ExampleSet) -> ExampleSet:
    """Return the examples that tell how training goes, of all classes alike: a file may be sorted by class."""
    return balanced_subset(examples, min(PROBE, len(examples)), key=fold("probe"))


def _plain(examples: ExampleSet, settings: Settings, ranks: Ranks) -> Batches:
    size = max(settings.batch_size, 256)
    return Batches(examples, batch_size=size, shuffle=False, rank=ranks.rank, world=ranks.world)
