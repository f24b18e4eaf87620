"""The loop over epochs and steps: rates, rows, the probe, validation, checkpoints, a polite end."""

from __future__ import annotations

import math
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from torch import Tensor
from torch.func import functional_call

from nfm.data.batches import Batches
from nfm.differing import differences
from nfm.errors import CheckpointError, Stopped
from nfm.results import Row, provenance, read_rows
from nfm.train import checkpoint
from nfm.train.accuracy import measure
from nfm.train.disk import free_bytes, writing
from nfm.train.folder import RunFolder
from nfm.train.optim import set_momentum
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
    key: str = ""  # of the run: a checkpoint of another one is refused
    folder: RunFolder | None = None
    checkpoints: Path | None = None
    rows: list[Row] = field(default_factory=list)
    _pending: list[Row] = field(default_factory=list)
    _best: tuple[int, dict[str, Tensor]] | None = None  # the steps done then, and the weights
    _seen: int = 0
    _earlier: int = 0
    _probe_accuracy: float | None = None

    def __post_init__(self) -> None:
        self.rates = [group["lr"] for group in self.state.optimizer.param_groups]
        self.began = self.saved = time.monotonic()
        self.made_by = provenance()

    def restore(self) -> bool:
        """Go on from the newest whole checkpoint; tell of damaged ones. Return whether there was one."""
        if self.checkpoints is None:
            return False
        damaged: list[Path] = []
        found = False
        for path in checkpoint.found_in(self.checkpoints, checkpoint.LAST):
            try:
                self._restore_from(path)
            except CheckpointError as error:
                self.progress.note(f"skipped: {error}")
                damaged.append(path)
            else:
                found = True
                break
        if damaged and not found:
            raise CheckpointError(
                f"{self.checkpoints}: expected a whole checkpoint to go on from, all are damaged; "
                "start anew with --overwrite"
            )
        self.ranks.agree("the checkpoint to go on from", asdict(self.state.position))
        if self.folder is not None:
            self._take_over_folder(self.folder, damaged)
        return found

    def _restore_from(self, path: Path) -> None:
        tensors, facts = checkpoint.load(path)
        if facts.get("run") != self.key:
            raise CheckpointError(f"{path}: expected a checkpoint of this run, it is another one's")
        try:
            self.state.restore(tensors, facts)
        except CheckpointError as error:
            raise CheckpointError(f"{path}: {error}") from error
        self._tell_changes(facts.get("made_by", {}))

    def _tell_changes(self, before: Row) -> None:
        changed = differences(before, self.made_by)
        changed.pop("commit", None)
        if changed:
            shown = ", ".join(f"{name} was {old}, is {new}" for name, (old, new) in changed.items())
            self.progress.note(f"{shown}: results may differ in their last bits from a run without a break")

    def _take_over_folder(self, folder: RunFolder, damaged: list[Path]) -> None:
        folder.cut_rows(self.state.position.rows_size)
        self.rows = list(read_rows(folder.rows)) if folder.rows.exists() else []
        for path in damaged:
            checkpoint.set_aside(path)

    def run(self) -> None:
        """Train to the end, or until a signal asks to stop."""
        position = self.state.position
        if position.finished:
            self.progress.note("nothing to do: this run is finished")
            return
        self._earlier = self._number
        self._tell_room()
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
            stopping = flag.signal is not None or self.ranks.orphaned
            result = self.stepper(batch, number, self.train.size(step), stop=stopping)
            self._after_step(epoch, step, number, rate, result)
            if result.stop:
                self._save()
                raise Stopped(f"stopped after step {number + 1}; the state is saved", flag.signal or 15)
            if self.checkpoints and time.monotonic() - self.saved >= self.settings.checkpoint_seconds:
                self._save()
        self._close_epoch(epoch)

    def _set_rate(self, number: int) -> float:
        run = {"steps_per_epoch": self.train.steps_per_epoch, "epochs": self.settings.epochs}
        factor, momentum = self.schedule.factor(number, **run), self.schedule.momentum(number, **run)
        for group, base in zip(self.state.optimizer.param_groups, self.rates, strict=True):
            group["lr"] = base * factor
            if momentum is not None:
                set_momentum(group, momentum)
        return self.rates[0] * factor

    def _after_step(self, epoch: int, step: int, number: int, rate: float, result: StepResult) -> None:
        position = self.state.position
        if self.state.average is not None:
            self.state.average.update(self.state.model)
        position.tally.add(result.loss, result.correct, result.size)
        position.epoch, position.step = epoch, step + 1
        self._seen += result.size
        if number % self.settings.log_every == 0:
            weight = float(result.draw.weight.double().mean())
            norm = result.grad_norm if math.isfinite(result.grad_norm) else None  # a step its scaler skipped
            self._write({
                "kind": "step", "epoch": epoch, "step": number, "loss": result.loss, "lr": rate,
                "grad_norm": norm, "site": result.draw.site, "weight": weight,
            })  # fmt: skip
        self.progress.step(self._moment(result.loss))

    def _close_epoch(self, epoch: int) -> None:
        position = self.state.position
        tally = position.tally
        # Each process has running statistics of its own; those of the first are kept, so they are measured.
        self.ranks.broadcast(self.state.statistics())
        self.state.model.eval()
        self._probe_accuracy, _ = measure(self._forward, self.probe, self.ranks)
        row: Row = {
            "kind": "epoch", "epoch": epoch, "train_loss": tally.loss / tally.count,
            "train_accuracy_weighted": tally.correct / tally.count, "probe_accuracy": self._probe_accuracy,
        }  # fmt: skip
        if self.validation is not None:
            accuracy, validation_loss = measure(self._forward, self.validation, self.ranks)
            row |= {"validation_accuracy": accuracy, "validation_loss": validation_loss}
            if accuracy > position.best:
                position.best = accuracy
                weights = {name: value.detach().clone() for name, value in self.state.weights().items()}
                self._best = (self._number, weights)
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
        if self.folder is not None and self.checkpoints is not None:
            with writing("the run", self.folder.path):
                self._save_to(self.folder, self.checkpoints)
        self.saved = time.monotonic()

    def _save_to(self, folder: RunFolder, checkpoints: Path) -> None:
        position, number = self.state.position, self._number
        folder.write(self._pending)
        self._pending = []
        position.rows_size = folder.rows.stat().st_size if folder.rows.exists() else 0
        if self._best is not None:
            step, weights = self._best
            path = checkpoint.path_of(checkpoints, checkpoint.BEST, step)
            checkpoint.save(path, weights, {"validation_accuracy": position.best})
            self._best = None
        tensors, facts = self.state.export()
        facts |= {"run": self.key, "made_by": self.made_by}
        checkpoint.save(checkpoint.path_of(checkpoints, checkpoint.LAST, number), tensors, facts)
        checkpoint.prune(checkpoints)
        seconds = time.monotonic() - self.began
        folder.write_times([
            {"step": number, "seconds": seconds, "examples": self._seen, "provenance": self.made_by}
        ])  # fmt: skip

    def _tell_room(self) -> None:
        """Warn if the disk will not hold three checkpoints: the two that are kept and the one being written."""
        if self.folder is None:
            return
        size = 3 * sum(value.nbytes for value in self.state.export()[0].values())
        free = free_bytes(self.folder.path)
        if free < size:
            self.progress.note(f"warning: three checkpoints need {size:,} bytes or more, {free:,} are free")

    @property
    def _number(self) -> int:
        """The steps done in all."""
        return self.state.position.epoch * self.train.steps_per_epoch + self.state.position.step

    def _moment(self, loss: float) -> Moment:
        epochs = self.settings.epochs
        return Moment(
            min(self.state.position.epoch + 1, epochs), epochs, self._number,
            epochs * self.train.steps_per_epoch, loss, self._seen, self._probe_accuracy, self._earlier,
        )  # fmt: skip
