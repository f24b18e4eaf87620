"""Learning-rate traces against formulas written out on their own."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from nfm.errors import UsageError
from nfm.method.presets import preset
from nfm.train.optim import Optimizer
from nfm.train.schedule import SHAPES, Schedule
from running import Interrupted, digits, network, rows_of, train

PER_EPOCH = 5


def trace(schedule: Schedule, epochs: int) -> list[float]:
    return [schedule.factor(s, steps_per_epoch=PER_EPOCH, epochs=epochs) for s in range(epochs * PER_EPOCH)]


def assert_trace(found: list[float], expected: list[float]) -> None:
    assert found == pytest.approx(expected, rel=1e-12, abs=1e-12)


def torch_trace(make: type, steps: int, **settings: float) -> list[float]:
    """Return the rates of a scheduler of torch, one a step, for a base rate of 1."""
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    scheduler = make(optimizer, **settings)
    rates = []
    for _ in range(steps):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return rates


def test_the_milestones_of_the_paper() -> None:
    """x0.1 after epochs 100, 150 and 180: effective from the first step of epochs 101, 151 and 181."""
    found = trace(Schedule("step"), 200)
    by_epoch = [1.0] * 100 + [0.1] * 50 + [0.01] * 30 + [0.001] * 20
    assert_trace(found, [rate for rate in by_epoch for _ in range(PER_EPOCH)])
    assert found[100 * PER_EPOCH - 1] == 1.0
    assert found[100 * PER_EPOCH] == pytest.approx(0.1)


def test_the_milestones_of_torch() -> None:
    expected = torch_trace(torch.optim.lr_scheduler.MultiStepLR, 12, milestones=[3, 7], gamma=0.3)
    found = [Schedule("step", (3, 7), 0.3).factor(s, steps_per_epoch=1, epochs=12) for s in range(12)]
    assert_trace(found, expected)


def test_cosine_against_torch_and_by_hand() -> None:
    steps = 8 * PER_EPOCH
    found = trace(Schedule("cosine"), 8)
    assert_trace(found, torch_trace(torch.optim.lr_scheduler.CosineAnnealingLR, steps, T_max=steps))
    assert_trace(found, [math.cos(math.pi * s / steps / 2) ** 2 for s in range(steps)])


def test_one_cycle_by_hand() -> None:
    """Up from `start` over `rise` of training, down to 0, both as cosines (Smith and Topin 2018, annealed)."""
    steps, top = 8 * PER_EPOCH, 12
    up = [0.04 + 0.96 * math.sin(math.pi * s / top / 2) ** 2 for s in range(top)]
    down = [math.cos(math.pi * s / (steps - top) / 2) ** 2 for s in range(steps - top)]
    assert_trace(trace(Schedule("one_cycle"), 8), up + down)
    assert max(trace(Schedule("one_cycle"), 8)) == 1.0


def test_the_momentum_of_one_cycle_goes_against_the_rate() -> None:
    """From the first of `momenta` to the second where the rate is highest, and back (Smith 2018, sec. 4.3)."""
    steps, top = 8 * PER_EPOCH, 12
    schedule = Schedule("one_cycle", momenta=(0.9, 0.7))
    found = [schedule.momentum(s, steps_per_epoch=PER_EPOCH, epochs=8) for s in range(steps)]
    heights = [math.sin(math.pi * s / top / 2) ** 2 for s in range(top)]
    heights += [math.cos(math.pi * s / (steps - top) / 2) ** 2 for s in range(steps - top)]
    assert_trace(found, [0.9 - 0.2 * height for height in heights])
    assert Schedule("cosine").momentum(3, steps_per_epoch=PER_EPOCH, epochs=8) is None


@pytest.mark.parametrize("name", ["sgd", "adamw"])
def test_a_run_cycles_its_momentum(name: str) -> None:
    model = network(digits())
    built = Optimizer(name, lr=0.01).build(model)
    seen: list[float] = []
    scheme = preset("erm")

    def watching(*args: Any, **options: Any) -> Any:
        group = built.param_groups[0]
        seen.append(group["momentum"] if name == "sgd" else group["betas"][0])
        return scheme(*args, **options)

    schedule = Schedule("one_cycle", momenta=(0.9, 0.7))
    train(model=model, method=watching, optimizer=built, schedule=schedule, epochs=2)
    assert_trace(seen, [schedule.momentum(s, steps_per_epoch=3, epochs=2) for s in range(6)])
    assert len(set(seen)) == 6  # the control: it moves


@pytest.mark.parametrize("name", ["constant", "cosine", "one_cycle", "step"])
def test_warm_up_is_linear_and_comes_before(name: str) -> None:
    schedule = Schedule(name, (1,), warmup=2)
    found = trace(schedule, 6)
    assert_trace(found[: 2 * PER_EPOCH], [(s + 1) / (2 * PER_EPOCH) for s in range(2 * PER_EPOCH)])
    rest = found[2 * PER_EPOCH :]
    if name == "step":  # milestones count epochs from the start of training
        assert_trace(rest, [0.1] * (4 * PER_EPOCH))
    else:
        assert_trace(rest, trace(Schedule(name), 4))


def test_a_part_of_an_epoch_can_be_warm_up() -> None:
    assert_trace(trace(Schedule("constant", warmup=0.4), 1), [0.5, 1.0, 1.0, 1.0, 1.0])


@pytest.mark.parametrize("name", list(SHAPES))
@pytest.mark.parametrize("epochs", [1, 3])
@pytest.mark.parametrize("warmup", [0.0, 1.0, 5.0])
def test_every_rate_is_a_share_of_the_base(name: str, epochs: int, warmup: float) -> None:
    found = trace(Schedule(name, warmup=warmup), epochs)
    assert all(0 <= rate <= 1 for rate in found)
    assert found != trace(Schedule(name, warmup=warmup + 2), epochs)  # the control: warm-up shows


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"name": "cosin"}, "did you mean 'cosine'"),
        ({"milestones": (3, 2)}, "rising epochs"),
        ({"milestones": (0, 2)}, "rising epochs"),
        ({"gamma": 2.0}, "schedule.gamma"),
        ({"gamma": float("nan")}, "schedule.gamma"),
        ({"warmup": -1.0}, "schedule.warmup"),
        ({"warmup": float("inf")}, "schedule.warmup"),
        ({"rise": 1.5}, "schedule.rise"),
        ({"start": -0.1}, "schedule.start"),
        ({"momenta": (0.9, 1.0)}, "schedule.momenta"),
    ],
)
def test_bad_schedules_are_refused(settings: dict[str, object], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        Schedule(**settings)


def test_a_run_follows_its_schedule_also_after_a_resume(tmp_path: Path) -> None:
    schedule, optimizer = Schedule("step", (1,), warmup=0.5), Optimizer(lr=0.2, rates={"head*": 0.5})
    settings = {"schedule": schedule, "optimizer": optimizer, "epochs": 3}
    with pytest.raises(Interrupted):
        train(tmp_path / "run", interrupt=5, **settings)
    train(tmp_path / "run", resume=True, **settings)
    rates = [row["lr"] for row in rows_of(tmp_path / "run", "step")]
    assert_trace(rates, [0.1, 0.2, 0.2, *[0.02] * 6])
