"""Do the jobs: train, measure, write rows. What is there already is not done again."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from torch import nn

from nfm.config.build import build_run
from nfm.config.initial import read_weights
from nfm.config.runs import to_recipe
from nfm.data.examples import DataSet, empty_like
from nfm.errors import EnvironmentProblem, NumericalError
from nfm.reproduce.jobs import Job, placed
from nfm.reproduce.kinds import take
from nfm.reproduce.measuring import Trained, chosen
from nfm.reproduce.records import EPOCH, MEASURING, RUN, Record
from nfm.results import Row, provenance, read_rows
from nfm.train import checkpoint
from nfm.train.fit import Fit, fit
from nfm.train.folder import CHECKPOINTS, ROWS
from nfm.train.ranks import Ranks, joined
from nfm.train.state import Position, load_weights

MEASURED_EPOCH = ("epoch", "train_loss", "probe_accuracy", "validation_accuracy", "validation_loss")


@dataclass(frozen=True)
class Places:
    """Where rows and claims, run folders and data are; and whether data may be downloaded."""

    claims: Path = Path("claims")
    runs: Path = Path("runs/reproduce")
    docs: Path = Path("docs")
    data_root: str = ""
    download: bool = False
    device: str = "auto"


def do_jobs(jobs: Sequence[Job], places: Places) -> bool:
    """Do every job that is not done; tell whether they are measured, too.

    Among processes of torchrun they are not: they would wait for the one that measures until they are given up.
    """
    failed: list[str] = []
    with _few_threads(jobs), joined(places.device) as ranks:
        for place, job in enumerate(jobs, start=1):
            if ranks.first:
                tell(f"[{place}/{len(jobs)}] {job.line.arm.name}, seed {job.seed}: {job.name}")
            try:
                do_job(job, places, ranks)
            except NumericalError as error:  # one arm that diverges does not stop the others
                failed.append(f"{job.line.arm.name}, seed {job.seed}: {error}")
                tell(f"  failed: {error}")
        if ranks.world > 1 and ranks.first:
            tell("trained; the same command without torchrun measures")
    if failed:
        raise NumericalError(f"{len(failed)} of {len(jobs)} runs failed:\n  " + "\n  ".join(failed))
    return ranks.world == 1


@contextmanager
def _few_threads(jobs: Sequence[Job]) -> Iterator[None]:
    """Compute on one thread where all runs are tiny: faster, and the same bits on any number of cores."""
    before = torch.get_num_threads()
    if all(job.line.scale.together for job in jobs):
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def do_job(job: Job, places: Places, ranks: Ranks) -> None:
    """Train and measure what is missing of one job."""
    record = Record.of(places.claims, job)
    missing = record.missing(job.measures)
    if not missing:
        return tell("  done already: its rows are there") if ranks.first else None
    began = time.monotonic()
    trained, made = train(job, places, ranks)
    if ranks.world > 1:
        return None
    record.add(training_rows(job, made, seconds=time.monotonic() - began))
    began = time.monotonic()
    for measure in missing:
        tell(f"  measuring {measure.key}")
        record.add(take(measure, trained))
    if not job.line.scale.together:
        record.add([{"kind": MEASURING, "measure": MEASURING, "seconds": time.monotonic() - began}])
    tell(f"  rows: {record.path}")
    return None


def train(job: Job, places: Places, ranks: Ranks) -> tuple[Trained, Fit]:
    """Train, or go on with what the run's folder holds; the weights are those of the last epoch, as the paper's."""
    parts = build_run(placed(job, root=places.data_root, download=places.download))
    data, folder = watched(parts.data, job.line.scale.watch), places.runs / job.line.name / job.name
    held_out = parts.data.validation if len(parts.data.validation) else None
    trained = Trained(parts.model, parts.data, job.config, folder, held_out)
    made = finished(folder, parts.model) if ranks.world == 1 else None
    made = made or fit(
        parts.model, parts.method, data, optimizer=job.config.optimizer, schedule=job.config.schedule,
        settings=job.config.train, augment=parts.augment, out=folder, resume=True, ranks=ranks,
        recipe=to_recipe(job.config, data),
    )  # fmt: skip
    parts.model.to(ranks.device).eval()
    return trained, made


def finished(folder: Path, model: nn.Module) -> Fit | None:
    """Load the last weights of a finished run into `model`, whatever number of processes or device trained it."""
    found = checkpoint.found_in(folder / CHECKPOINTS, checkpoint.LAST)
    facts = checkpoint.load(found[0])[1] if found else {}
    if not facts.get("position", {}).get("finished"):
        return None
    load_weights(model, read_weights(found[0].with_suffix(".json")), str(found[0]))
    return Fit(list(read_rows(folder / ROWS)), Position.from_facts(facts["position"]), folder, resumed=True)


def watched(data: DataSet, count: int) -> DataSet:
    """Return the data with `count` test images in the place of the validation part, to be measured each epoch."""
    if not count:
        return data
    return replace(data, validation=chosen(data.test, count) if len(data.test) else empty_like(data.train))


def training_rows(job: Job, made: Fit, *, seconds: float) -> list[Row]:
    """Return what is kept of a training: its settings and its epochs. A resumed run tells the last session's time."""
    head: Row = {
        "kind": RUN, "key": job.key, "config": asdict(job.config), "watch": job.line.scale.watch, "seconds": seconds,
        "resumed": made.resumed, "made_by": provenance(),
    }  # fmt: skip
    epochs = [row for row in made.rows if row["kind"] == EPOCH]
    if job.line.scale.together:
        head, epochs = {**head, "config": job.chosen}, epochs[-1:]
    return [
        head,
        *({"kind": EPOCH} | {name: row[name] for name in MEASURED_EPOCH if name in row} for row in epochs),
    ]


def tell(text: str) -> None:
    """Say what is being done, where progress is shown."""
    print(text, file=sys.stderr, flush=True)


def check_writable(places: Places, *, training: bool = True) -> None:
    """Refuse places that rows, figures and (when `training`) runs cannot be written to, before hours of work."""
    folders = {"--claims": places.claims / "rows", "--docs": places.docs}
    for flag, folder in (folders | ({"--runs": places.runs} if training else {})).items():
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                pass
        except OSError as error:
            raise EnvironmentProblem(f"{flag}: cannot write to {folder}: {error.strerror}") from error
