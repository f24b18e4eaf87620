"""All that a run must remember to go on as if never interrupted, as tensors and facts of a checkpoint."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from nfm.errors import CheckpointError
from nfm.train.ema import Average


@dataclass
class Tally:
    """Sums over the steps of the current epoch."""

    loss: float = 0.0
    correct: float = 0.0
    count: int = 0

    def add(self, loss: float, correct: float, count: int) -> None:
        self.loss += loss * count
        self.correct += correct
        self.count += count


@dataclass
class Position:
    """Where a run stands: the epoch, the steps done in it, its sums, the rows written and the best so far."""

    epoch: int = 0
    step: int = 0
    tally: Tally = field(default_factory=Tally)
    rows_size: int = 0
    best: float = -1.0
    finished: bool = False

    @classmethod
    def from_facts(cls, facts: dict[str, Any]) -> Position:
        """Return the position told by `facts`."""
        return cls(**(facts | {"tally": Tally(**facts["tally"])}))


@dataclass
class State:
    """The network, its optimizer, its average, the scaler, and the position."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    scaler: torch.amp.GradScaler
    average: Average | None
    position: Position

    def export(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return the tensors and the facts of a checkpoint."""
        tensors = {f"model.{name}": value for name, value in self.model.state_dict().items()}
        if self.average is not None:
            tensors |= {f"average.{name}": value for name, value in self.average.state.items()}
        optimizer = self.optimizer.state_dict()
        plain: dict[str, dict[str, Any]] = {}
        for index, entries in optimizer["state"].items():
            for name, value in entries.items():
                if isinstance(value, Tensor):
                    tensors[f"optimizer.{index}.{name}"] = value
                else:
                    plain.setdefault(str(index), {})[name] = value
        facts = {
            "position": asdict(self.position), "optimizer_groups": optimizer["param_groups"],
            "optimizer_plain": plain, "scaler": self.scaler.state_dict(),
        }  # fmt: skip
        return tensors, facts

    def restore(self, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
        """Go on from what `export` returned; refuse what it did not."""
        load_weights(self.model, _under("model.", tensors), "checkpoint")
        try:
            if self.average is not None:
                self.average.load(_under("average.", tensors))
            state = _optimizer_state(tensors, facts["optimizer_plain"])
            self.optimizer.load_state_dict({"state": state, "param_groups": facts["optimizer_groups"]})
            self.scaler.load_state_dict(facts["scaler"])
            self.position = Position.from_facts(facts["position"])
        except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
            raise CheckpointError(f"expected the state of this run, got {error!r}") from error

    def statistics(self) -> list[Tensor]:
        """Return the running statistics: the buffers of the network, and their average where there is one."""
        buffers = dict(self.model.named_buffers())
        averages = self.average.state if self.average is not None else {}
        return [*buffers.values(), *(averages[name] for name in buffers if name in averages)]

    def weights(self) -> dict[str, Tensor]:
        """Return the weights to use: the average where there is one."""
        return self.model.state_dict() if self.average is None else self.average.state


def _optimizer_state(tensors: dict[str, Tensor], plain: dict[str, Any]) -> dict[int, dict[str, Any]]:
    state: dict[int, dict[str, Any]] = {}
    for name, value in _under("optimizer.", tensors).items():
        index, _, entry = name.partition(".")
        state.setdefault(int(index), {})[entry] = value
    for index, entries in plain.items():
        state.setdefault(int(index), {}).update(entries)
    return state


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def load_weights(model: nn.Module, weights: dict[str, Tensor], where: str) -> None:
    """Load `weights` into `model`; refuse missing, foreign and misshapen ones by name, and NaN."""
    own = model.state_dict()
    wrong = [f"missing {name}" for name in own.keys() - weights.keys()]
    wrong += [f"unexpected {name}" for name in weights.keys() - own.keys()]
    wrong += [
        f"{name} has shape {tuple(weights[name].shape)}, expected {tuple(own[name].shape)}"
        for name in own.keys() & weights.keys()
        if own[name].shape != weights[name].shape
    ]
    wrong += [
        f"{name} holds NaN or infinity"
        for name, value in weights.items()
        if value.is_floating_point() and not torch.isfinite(value).all()
    ]
    if wrong:
        shown = "; ".join(sorted(wrong)[:10])
        raise CheckpointError(f"{where} does not fit {type(model).__name__} ({len(wrong)} problems): {shown}")
    model.load_state_dict(weights)
