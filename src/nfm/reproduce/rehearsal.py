"""A rehearsal: build every arm of a study, try one batch, and tell the commands; nothing is trained or written."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence, Set

import torch
import torch.nn.functional as F
from torch import Tensor

from nfm.config.build import build_augment, build_data, build_method, build_model, facts_of
from nfm.config.schema import DataConfig, Facts
from nfm.data.catalog import parse
from nfm.data.examples import to_unit
from nfm.errors import DataError, NumericalError
from nfm.randomness import fold, torch_generator
from nfm.reproduce.execution import Places
from nfm.reproduce.jobs import Job, placed
from nfm.reproduce.study import Study

BATCH = 4
Batch = tuple[Facts, Tensor, str]  # of data: what a network must know, a few examples, what they are


def rehearse(study: Study, scale: str, jobs: Sequence[Job], places: Places, *, command: str) -> str:
    """Return what a study would do, after each arm took a batch forwards and backwards.

    `command` does it, but for the seeds: ``reproduce ID --scale SCALE`` and where things are.
    """
    tried: dict[str, str] = {}
    batch_of = functools.cache(_batch)
    for job in jobs:
        if job.line.arm.name not in tried:
            tried[job.line.arm.name] = _try(job, places, batch_of)
    told = study.scales[scale]
    lines = [f"{study.title} ({scale} scale): {len(jobs)} runs; time: {told.time or 'not known'}"]
    lines += [f"needs: {told.needs}"] if told.needs else []
    lines += [f"  {name}: {text}" for name, text in tried.items()]
    own = {seed for line in study.lines(scale) for seed in line.seeds}
    return "\n".join([*lines, *_commands(command, {job.seed for job in jobs}, own)])


def _try(job: Job, places: Places, batch_of: Callable[[DataConfig], Batch]) -> str:
    """Return what one arm is, after a batch through its network and method."""
    config = job.config
    facts, x, source = batch_of(placed(job, root=places.data_root, download=False).data)
    model = build_model(config.model, facts, seed=job.seed)
    method = build_method(config.method, seed=job.seed)
    build_augment(config.data)
    config.optimizer.build(model)
    if hasattr(method, "check"):
        method.check(model, x)
    y = torch.arange(len(x)) % len(facts.classes)
    loss = method(model.train(), x, y, criterion=F.cross_entropy, step=0).loss
    loss.backward()
    first = loss.item()
    if not math.isfinite(first):
        raise NumericalError(f"arm {job.line.arm.name}: the loss of the first batch is {first}")
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return (
        f"{config.model.name}, {parameters:,} parameters, input {tuple(x.shape[1:])} ({source}), "
        f"{len(facts.classes)} classes, {config.train.epochs} epochs; loss of the first batch {first:.2f}"
    )


def _batch(config: DataConfig) -> Batch:
    """Return facts and a few examples; for data that is not here, random ones of its shape, told as such."""
    try:
        data = build_data(config)
    except DataError as error:
        return _stand_in(config, error)
    return (
        facts_of(data),
        to_unit(data.train.fetch(torch.arange(min(BATCH, len(data.train))))),
        "real examples",
    )


def _stand_in(config: DataConfig, error: DataError) -> Batch:
    source, _ = parse(config.name)
    shape = tuple(int(side) for side in source.size.rpartition(" of ")[2].split("x") if side.isdecimal())
    if source.classes is None or not shape:
        raise error
    facts = Facts(shape, tuple(map(str, range(source.classes))), (0.5,) * shape[0], (0.25,) * shape[0])
    generator = torch_generator(fold(0, "stand-in"))
    return facts, torch.rand(BATCH, *shape, generator=generator), f"random: {error}"


def _commands(command: str, seeds: Set[int], own: Set[int]) -> list[str]:
    """Return the commands of `seeds`, which are told where they are not the study's own."""
    every = command if seeds == own else f"{command} --seeds {' '.join(map(str, sorted(seeds)))}"
    return [
        "commands, one process a GPU and seed:",
        *(
            f"  CUDA_VISIBLE_DEVICES={place} nfm {command} --seeds {seed}"
            for place, seed in enumerate(sorted(seeds))
        ),
        "or every run over all GPUs of a machine, then one process that measures:",
        f"  torchrun --standalone --nproc-per-node gpu -m nfm {every}",
        f"  nfm {every}",
    ]
