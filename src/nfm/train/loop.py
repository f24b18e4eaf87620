"""The loop over epochs and steps: rates, rows, the probe, validation, checkpoints, a polite end."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor
from torch.func import functional_call

from nfm.data.batches import Batches
from nfm.errors import CheckpointError, Stopped
from nfm.results import Row, provenance, read_rows
from nfm.train import checkpoint
from nfm.train.accuracy import measure
from nfm.train.folder import BEST, RunFolder
from nfm.train.progress import Moment, Progress
from nfm.train.ranks import Ranks
from nfm.train.schedule import Schedule
from nfm.train.settings import Settings
from nfm.train.signals import StopFlag
from nfm.train.state import State, Tally
from nfm.train.step import Stepper, StepResult


@dataclass
class Loop:
    """One run in this process. `rows` are all rows of the run, those of earlier sessions included."""

    state: State
    stepper: Stepper
    schedule: Schedule
    settings: Settings
    ranks: Ranks
    train: Batches
    probe: Batches
    validation: Batches | None
    progress: Progress
    folder: RunFolder | None = None
    checkpoints: Path | None = None
    rows: list[Row] = field(default_factory=list)
    _pending: list[Row] = field(default_factory=list)
    _best: dict[str, Tensor] | None = None
    _seen: int = 0
    _probe_accuracy: float | None = None

    def __post_init__(self) -> None:
        self.rates = [group["lr"] for group in self.state.optimizer.param_groups]
        self.began = self.saved = time.monotonic()

    def restore(self) -> bool:
        """Go on from the newest whole checkpoint; tell of damaged ones. Return whether there was one."""
        if self.checkpoints is None:
            return False
        for path, problem in checkpoint.newest(self.checkpoints):
            if problem is not None:
                self.progress.note(f"skipped: {problem}")
                continue
            self.state.restore(*checkpoint.load(path))
            if self.folder is not None:
                self.folder.cut_rows(self.state.position.rows_size)
                self.rows = list(read_rows(self.folder.rows)) if self.folder.rows.exists() else []
            return True
        if checkpoint.steps_in(self.checkpoints):
            raise CheckpointError(
                f"{self.checkpoints}: expected a whole checkpoint to go on from, all are damaged"
            )
        if self.folder is not None:
            self.folder.cut_rows(0)
        return False

    def run(self) -> None:
        """Train to the end, or until a signal asks to stop."""
        position = self.state.position
        if position.finished:
            self.progress.note("nothing to do: this run is finished")
            return
        self.progress.start("training", self._moment(float("nan")))
        try:
            with StopFlag() as flag:
                for epoch in range(position.epoch, self.settings.epochs):
                    self._epoch(epoch, flag)
            position.finished = True
            self._save()
        finally:
            self.progress.stop()

    def _epoch(self, epoch: int, flag: StopFlag) -> None:
        position = self.state.position
        self.state.model.train()
        for step, batch in enumerate(self.train.epoch(epoch, position.step), position.step):
            number = epoch * self.train.steps_per_epoch + step
            rate = self._set_rate(number)
            stopping = flag.signal is not None
            result = self.stepper(batch, number, self.train.size(step), stop=stopping)
            self._after_step(epoch, step, number, rate, result)
            if result.stop:
                self._save()
                raise Stopped(f"stopped after step {number + 1}; the state is saved", flag.signal or 15)
            if self.checkpoints and time.monotonic() - self.saved >= self.settings.checkpoint_seconds:
                self._save()
        self._close_epoch(epoch)

    def _set_rate(self, number: int) -> float:
        factor = self.schedule.factor(
            number, steps_per_epoch=self.train.steps_per_epoch, epochs=self.settings.epochs
        )
        for group, base in zip(self.state.optimizer.param_groups, self.rates, strict=True):
            group["lr"] = base * factor
        return self.rates[0] * factor

    def _after_step(self, epoch: int, step: int, number: int, rate: float, result: StepResult) -> None:
        position = self.state.position
        if self.state.average is not None:
            self.state.average.update(self.state.model)
        position.tally.add(result.loss, result.correct, result.size)
        position.epoch, position.step = epoch, step + 1
        self._seen += result.size * self.ranks.world
        if number % self.settings.log_every == 0:
            weight = float(result.draw.weight.double().mean())
            self._write({
                "kind": "step", "epoch": epoch, "step": number, "loss": result.loss, "lr": rate,
                "grad_norm": result.grad_norm, "site": result.draw.site, "weight": weight,
            })  # fmt: skip
        self.progress.step(self._moment(result.loss))

    def _close_epoch(self, epoch: int) -> None:
        position = self.state.position
        tally = position.tally
        loss, correct, count = self.ranks.summed(
            torch.tensor([tally.loss, tally.correct, tally.count], dtype=torch.float64)
        ).tolist()
        self.state.model.eval()
        self._probe_accuracy, _ = measure(self._forward, self.probe, self.ranks)
        row: Row = {
            "kind": "epoch", "epoch": epoch, "train_loss": loss / count,
            "train_accuracy_weighted": correct / count, "probe_accuracy": self._probe_accuracy,
        }  # fmt: skip
        if self.validation is not None:
            accuracy, validation_loss = measure(self._forward, self.validation, self.ranks)
            row |= {"validation_accuracy": accuracy, "validation_loss": validation_loss}
            if accuracy > position.best:
                position.best = accuracy
                self._best = {name: value.detach().clone() for name, value in self.state.weights().items()}
        position.epoch, position.step, position.tally = epoch + 1, 0, Tally()
        self._write(row)

    def _forward(self, x: Tensor) -> Tensor:
        if self.state.average is None:
            return self.state.model(x)
        return functional_call(self.state.model, self.state.average.state, (x,))

    def _write(self, row: Row) -> None:
        self.rows.append(row)
        self._pending.append(row)

    def _save(self) -> None:
        """Write rows and a checkpoint; the rows first, for the checkpoint tells how many there are."""
        self.saved = time.monotonic()
        if self.folder is None or self.checkpoints is None:
            return
        position = self.state.position
        self.folder.write(self._pending)
        self._pending = []
        position.rows_size = self.folder.rows.stat().st_size if self.folder.rows.exists() else 0
        number = position.epoch * self.train.steps_per_epoch + position.step
        if self._best is not None:
            checkpoint.save(self.checkpoints / BEST, self._best, {"validation_accuracy": position.best})
            self._best = None
        checkpoint.save(checkpoint.step_path(self.checkpoints, number), *self.state.export())
        checkpoint.prune(self.checkpoints)
        seconds = time.monotonic() - self.began
        self.folder.write_times([
            {"step": number, "seconds": seconds, "examples": self._seen, "provenance": provenance()}
        ])  # fmt: skip

    def _moment(self, loss: float) -> Moment:
        position = self.state.position
        per_epoch = self.train.steps_per_epoch
        return Moment(
            min(position.epoch + 1, self.settings.epochs), self.settings.epochs,
            position.epoch * per_epoch + position.step, self.settings.epochs * per_epoch,
            loss, self._seen, self._probe_accuracy,
        )  # fmt: skip
