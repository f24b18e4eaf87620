"""`fit`: from a network, a method and data to a trained network, in one call. Each part is usable alone."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nfm.data.batches import Batches
from nfm.data.check import check_examples
from nfm.data.examples import Augment, DataSet, to_unit
from nfm.errors import EnvironmentProblem, UsageError
from nfm.method.attach import attach
from nfm.method.feature_mixup import NoisyFeatureMixup
from nfm.results import Row
from nfm.train.ema import Average
from nfm.train.folder import CHECKPOINTS, RECIPE, RunFolder
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
    _check_data(model, method, data, settings)
    identity = _identity(model, method, data, settings, optimizer, schedule, ranks)
    identity |= {"augment": repr(augment), RECIPE: dict(recipe or {})}
    ranks.agree("the run", json.dumps(identity, sort_keys=True))
    with ExitStack() as stack:
        stack.enter_context(_deterministic(settings.deterministic))
        folder = RunFolder(out) if out is not None and ranks.first else None
        if folder is not None:
            folder.open(identity, resume=resume, overwrite=overwrite)
            stack.callback(folder.close)
        root = model.to(ranks.device)
        built = optimizer.build(root) if isinstance(optimizer, Optimizer) else optimizer
        forward = _wrap(root, method, settings, ranks, stack)
        loss = criterion or functools.partial(F.cross_entropy, label_smoothing=settings.label_smoothing)
        stepper = Stepper(forward, root, method, loss, built, settings, ranks)
        average = Average(root, settings.ema) if settings.ema else None
        state = State(root, built, stepper.scaler, average, Position())
        loop = Loop(
            state=state, stepper=stepper, schedule=schedule, settings=settings, ranks=ranks, folder=folder,
            train=_batches(data.train, settings, ranks, augment),
            probe=_plain(data.train, settings, ranks, PROBE),
            validation=_plain(data.validation, settings, ranks) if len(data.validation) else None,
            progress=(progress or choose_progress()) if ranks.first else Silent(),
            checkpoints=Path(out) / CHECKPOINTS if out is not None else None,
        )  # fmt: skip
        resumed = loop.restore() if resume else False
        loop.run()
        return Fit(loop.rows, state.position, Path(out) if out is not None else None, resumed)


def _settings(settings: Settings | None, numbers: Mapping[str, Any]) -> Settings:
    if settings is not None and numbers:
        raise UsageError(f"expected settings or numbers, got both: {', '.join(numbers)}")
    try:
        return settings or Settings(**numbers)
    except TypeError as error:
        raise UsageError(
            f"fit: {error}; known settings: {', '.join(Settings.__dataclass_fields__)}"
        ) from None


def _check_data(model: nn.Module, method: Method, data: DataSet, settings: Settings) -> None:
    """Refuse data that cannot be trained on, and a network or method that does not fit it."""
    check_examples(data.train, data.num_classes)
    if isinstance(method, NoisyFeatureMixup):
        few = torch.arange(min(4, len(data.train)))
        device = next(model.parameters()).device
        method.check(model, to_unit(data.train.fetch(few)).to(device))
    head = [module for module in model.modules() if isinstance(module, nn.Linear)]
    if head and head[-1].out_features < data.num_classes:
        raise UsageError(
            f"expected a network with {data.num_classes} outputs for {data.name}, got {head[-1].out_features}"
        )


def _identity(
    model: nn.Module, method: Method, data: DataSet, settings: Settings,
    optimizer: Optimizer | torch.optim.Optimizer, schedule: Schedule, ranks: Ranks,
) -> dict[str, Any]:  # fmt: skip
    """Return what decides the result to the byte, apart from the versions of things."""
    shapes = [(name, list(value.shape)) for name, value in model.state_dict().items()]
    spec = asdict(optimizer) if isinstance(optimizer, Optimizer) else repr(optimizer)
    ids = hashlib.sha256(data.train.ids.numpy().tobytes() + data.train.labels.numpy().tobytes()).hexdigest()
    irrelevant = ("workers", "checkpoint_seconds")
    return {
        "model": f"{type(model).__name__} {hashlib.sha256(json.dumps(shapes).encode()).hexdigest()[:16]}",
        "method": repr(method), "data": f"{data.name} {ids[:16]}", "optimizer": spec,
        "schedule": asdict(schedule), "world": ranks.world, "device": ranks.device.type,
        "settings": {name: value for name, value in asdict(settings).items() if name not in irrelevant},
    }  # fmt: skip


def _wrap(root: nn.Module, method: Method, settings: Settings, ranks: Ranks, stack: ExitStack) -> nn.Module:
    """Return what the forward pass calls: the network, compiled and distributed as the settings say."""
    forward = root
    if settings.channels_last:
        root.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if settings.sync_batch_norm:
        if ranks.device.type == "cpu":
            raise EnvironmentProblem("sync_batch_norm: torch has it for CUDA only; leave it off on a CPU")
        if ranks.world == 1:
            raise UsageError("sync_batch_norm: expected more than one process; start with torchrun")
        forward = root = nn.SyncBatchNorm.convert_sync_batchnorm(root)
    if settings.compile:
        if isinstance(method, NoisyFeatureMixup):
            stack.enter_context(attach(root, method))
        forward = torch.compile(forward)  # type: ignore[assignment]
    if ranks.world > 1:
        devices = [ranks.device] if ranks.device.type == "cuda" else None
        forward = nn.parallel.DistributedDataParallel(forward, device_ids=devices)
    return forward


@contextmanager
def _deterministic(wanted: bool) -> Iterator[None]:
    """Ask torch for deterministic algorithms while inside."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(wanted or before)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


def _batches(examples: Any, settings: Settings, ranks: Ranks, augment: Augment | None) -> Batches:
    return Batches(
        examples, batch_size=settings.batch_size, seed=settings.seed, augment=augment, rank=ranks.rank,
        world=ranks.world, workers=settings.workers,
    )  # fmt: skip


def _plain(examples: Any, settings: Settings, ranks: Ranks, most: int | None = None) -> Batches:
    few = examples if most is None else examples.subset(torch.arange(min(most, len(examples))))
    size = max(settings.batch_size, 256)
    return Batches(few, batch_size=size, shuffle=False, rank=ranks.rank, world=ranks.world)
