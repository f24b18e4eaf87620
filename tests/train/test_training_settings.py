"""Every setting of the loop does what it says: parts of batches, averages, smoothing, formats, precision."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from comparing import assert_close, assert_different, assert_same
from nfm.data import Batches
from nfm.method.presets import preset
from nfm.train import checkpoint
from nfm.train.accuracy import measure
from nfm.train.optim import Optimizer
from nfm.train.ranks import Ranks
from nfm.train.schedule import Schedule
from running import InterruptAfter, Moment, digits, network, newest, nfm, rows_of, train

PLAIN = {"scheme": "erm", "optimizer": Optimizer(lr=0.1), "schedule": Schedule("cosine")}


def weights_after(name: str = "mlp", **settings: Any) -> list[Tensor]:
    model = network(digits(), name)
    train(model=model, **(PLAIN | settings))
    return [value.detach().clone() for value in model.state_dict().values()]


class Watching:
    """A scheme that keeps what it was given and what `look` sees."""

    def __init__(self, look: Any, scheme: str = "erm") -> None:
        self.inner, self.look, self.seen = preset(scheme), look, list[Any]()

    def __call__(self, model: nn.Module, x: Tensor, y: Tensor, *, criterion: Any, step: int) -> Any:
        self.seen.append(self.look(model, x, step))
        return self.inner(model, x, y, criterion=criterion, step=step)


class TestAccumulation:
    def test_parts_give_the_gradient_of_the_whole(self) -> None:
        whole = weights_after(batch_size=32)
        assert_close(weights_after(batch_size=32, accumulate=4), whole, relative=1e-6)
        with pytest.raises(AssertionError):  # the control
            assert_close(weights_after(batch_size=8), whole, relative=1e-6)

    def test_parts_mix_within_themselves(self) -> None:
        assert_different(weights_after(scheme="mixup", accumulate=2), weights_after(scheme="mixup"))

    @pytest.mark.parametrize(
        ("size", "batch", "parts", "expected"),
        [
            (48, 32, 4, [8, 8, 8, 8, 8, 8]),
            (37, 32, 4, [8, 8, 8, 8, 5]),  # a last batch is not cut thinner than the others
            (41, 32, 4, [8, 8, 8, 8, 5, 4]),
            (33, 32, 4, [9, 8, 8, 8]),  # 32 and 1: merged into one, still in four parts
            (20, 10, 3, [4, 3, 3, 4, 3, 3]),
            (14, 10, 3, [4, 3, 3, 2, 2]),
            (6, 6, 4, [2, 2, 1, 1]),
            (6, 6, 6, [1] * 6),
        ],
    )
    @pytest.mark.filterwarnings("ignore:the last batch", "ignore:examples")
    def test_every_batch_is_cut_into_parts(
        self, size: int, batch: int, parts: int, expected: list[int]
    ) -> None:
        data = digits()
        data = replace(data, train=data.train.subset(torch.arange(size)))
        method = Watching(lambda model, x, step: len(x))
        train(data=data, method=method, batch_size=batch, accumulate=parts, epochs=1)
        assert method.seen == expected

    def test_keys_of_parts_never_meet(self) -> None:
        method = Watching(lambda model, x, step: step)
        train(method=method, batch_size=10, accumulate=3)
        assert len(set(method.seen)) == len(method.seen)


class Weights(InterruptAfter):
    """Keep the weights after each step."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.kept = [self.now()]

    def now(self) -> dict[str, Tensor]:
        return {name: value.double().clone() for name, value in self.model.state_dict().items()}

    def step(self, moment: Moment) -> None:
        self.kept.append(self.now())


class TestAverage:
    @pytest.mark.parametrize("name", ["mlp", "small_conv"])
    def test_it_is_the_closed_form(self, tmp_path: Path, name: str) -> None:
        """After n steps: d^n w_0 + (1 - d) sum_k d^(n-k) w_k."""
        model, decay, epochs = network(digits(), name), 0.9, 34
        kept = Weights(model)
        train(tmp_path / "run", model=model, ema=decay, epochs=epochs, progress=kept, checkpoint_seconds=60.0)
        steps = len(kept.kept) - 1
        assert steps == 3 * epochs
        tensors, _ = checkpoint.load(newest(tmp_path / "run"))
        for key, last in kept.kept[-1].items():
            expected = decay**steps * kept.kept[0][key] + (1 - decay) * sum(
                decay ** (steps - k) * kept.kept[k][key] for k in range(1, steps + 1)
            )
            if key.endswith("num_batches_tracked"):
                expected = last
            found = tensors[f"average.{key}"].double()
            assert (found - expected).abs().max() <= 1e-6 * expected.abs().max().clamp_min(1)
            if not key.startswith("normalise"):
                assert key.endswith("num_batches_tracked") or not torch.equal(found, last)

    def test_it_is_what_is_measured_and_kept_as_best(self, tmp_path: Path) -> None:
        data = digits()
        train(tmp_path / "run", name="small_conv", ema=0.8, epochs=1)
        best = checkpoint.load(checkpoint.found_in(tmp_path / "run" / "checkpoints", checkpoint.BEST)[0])[0]
        model = network(data, "small_conv")
        model.load_state_dict(best)
        accuracy, loss = measure(
            model.eval(), Batches(data.validation, batch_size=99, shuffle=False), Ranks()
        )
        row = rows_of(tmp_path / "run", "epoch")[-1]
        assert (row["validation_accuracy"], row["validation_loss"]) == (accuracy, loss)

    def test_it_does_not_disturb_training(self) -> None:
        assert_same(weights_after(ema=0.9), weights_after())


def test_label_smoothing_by_hand(tmp_path: Path) -> None:
    data = digits()
    train(tmp_path / "run", label_smoothing=0.2, epochs=1, **PLAIN)
    batch = next(iter(Batches(data.train, batch_size=16).epoch(0)))
    logs = F.log_softmax(network(data)(batch.x).detach().double(), 1)
    own = -logs[torch.arange(16), batch.y]
    expected = (0.8 * own + 0.2 * -logs.mean(1)).mean()
    found = rows_of(tmp_path / "run", "step")[0]["loss"]
    assert found == pytest.approx(float(expected), rel=1e-6)
    assert found != pytest.approx(float(own.mean()), rel=1e-5)


def test_channels_last_reaches_the_network_and_changes_rounding_only() -> None:
    method = Watching(
        lambda model, x, step: (
            x.is_contiguous(memory_format=torch.channels_last),
            model.stage2[0].weight.is_contiguous(memory_format=torch.channels_last),
        )
    )
    model = network(digits(), "small_conv")
    train(model=model, channels_last=True, **(PLAIN | {"method": method}))
    assert set(method.seen) == {(True, True)}
    plain = [p.detach() for p in model.parameters()]
    other = network(digits(), "small_conv")
    train(model=other, **PLAIN)
    assert_close(plain, [p.detach() for p in other.parameters()], relative=1e-3)


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_autocast_computes_in_half_and_keeps_weights_whole(precision: str) -> None:
    model = network(digits())
    dtypes = set()
    model.hidden2.register_forward_hook(
        lambda module, args, output: dtypes.add(output.dtype) if module.training else None
    )
    train(model=model, precision=precision, **PLAIN)
    assert dtypes == {getattr(torch, precision)}
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    found = [p.detach() for p in model.parameters()]
    full = network(digits())
    train(model=full, **PLAIN)
    assert_close(found, [p.detach() for p in full.parameters()], relative=0.05)
    assert_different(found, [p.detach() for p in full.parameters()])


@pytest.mark.slow
def test_convolutions_train_in_bfloat16(tmp_path: Path) -> None:
    """In a process of its own: some machines lack the instructions that oneDNN picks for this."""
    ended = nfm(
        "train", "--data", "digits", "--model", "small_conv", "--precision", "bfloat16", "--epochs", "1",
        "--out", str(tmp_path / "run"), cwd=tmp_path, env={"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_FP16"},
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr


class TestDeterminism:
    @pytest.mark.parametrize(("before", "only_warned"), [(False, False), (True, True), (True, False)])
    def test_the_switch_is_put_back(self, before: bool, only_warned: bool) -> None:
        inside: list[bool] = []
        torch.use_deterministic_algorithms(before, warn_only=only_warned)
        try:
            method = Watching(
                lambda model, x, step: inside.append(torch.are_deterministic_algorithms_enabled())
            )
            train(method=method, deterministic=True, epochs=1)
            assert set(inside) == {True}
            with pytest.raises(ZeroDivisionError):
                train(method=Watching(lambda model, x, step: 1 // 0), deterministic=True, epochs=1)
            assert torch.are_deterministic_algorithms_enabled() is before
            assert torch.is_deterministic_algorithms_warn_only_enabled() is only_warned
        finally:
            torch.use_deterministic_algorithms(False)

    def test_it_is_off_unless_asked_for(self) -> None:
        method = Watching(lambda model, x, step: torch.are_deterministic_algorithms_enabled())
        train(method=method, epochs=1)
        assert set(method.seen) == {False}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*script_method:DeprecationWarning")  # of torch, at its import
@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize("scheme", ["erm", "nfm"])
def test_a_compiled_network_trains_alike(scheme: str) -> None:
    compiled = weights_after(scheme=scheme, compile=True)
    assert_close(compiled, weights_after(scheme=scheme), relative=1e-4)
    assert_different(compiled, weights_after(scheme=scheme, seed=1))
