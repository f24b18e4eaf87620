"""What every scheme promises. A scheme that is registered without test settings fails here, at collection."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import nfm
from comparing import assert_close, assert_different, assert_same, flat, gradients, hooks_in, same
from nfm.errors import UsageError
from nfm.method.attach import ready_to_compile
from nfm.method.presets import PRESETS
from nfm.method.schemes import SCHEMES, Entry
from nfm.registry import Registry
from running import Interrupted, assert_same_result, digits, network, rows_of, train

CARDS = Path(__file__).parents[2] / "docs" / "schemes"


def without_settings(schemes: Registry[Entry]) -> list[str]:
    return [name for name in schemes if schemes[name].tested is None]


assert not without_settings(SCHEMES), f"registered without test settings: {without_settings(SCHEMES)}"
ALONE = list(SCHEMES)
COMPOSED = ["nfm + label_smoothing", "adversarial + nfm", "0.5 mixup | 0.5 cutmix + label_smoothing"]
RANDOM = [name for name in ALONE if name not in ("erm", "label_smoothing")]
EVERY = pytest.mark.parametrize("name", ALONE + COMPOSED)


def test_a_scheme_without_test_settings_would_be_seen() -> None:
    schemes: Registry[Entry] = Registry("scheme")
    schemes.add("tested", SCHEMES["nfm"])
    schemes.add("untested", dataclasses.replace(SCHEMES["nfm"], tested=None))
    assert without_settings(schemes) == ["untested"]


@pytest.mark.parametrize("name", [name for name in ALONE if name not in PRESETS])
def test_it_has_a_card(name: str) -> None:
    card = (CARDS / f"{name}.md").read_text()
    for part in (
        "**Idea.**",
        "**Equation",
        "**Use.**",
        "**Levels.**",
        "**Cost.**",
        "**Robustness, as measured by us.**",
    ):
        assert part in card


def make(name: str, **settings: Any) -> Any:
    return nfm.scheme(
        name, **{**(SCHEMES[name].tested or {} if name in SCHEMES else {}), "seed": 1, **settings}
    )


def net(**options: Any) -> nn.Module:
    return network(digits(), "small_conv", **options)


def few(size: int = 6, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Return images in [0, 1] and labels."""
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(size, 1, 8, 8, generator=generator), torch.randint(0, 10, (size,), generator=generator)


def step_of(method: Any, model: nn.Module, size: int = 6, **settings: Any) -> list[Tensor]:
    outcome = method(model, *few(size), **settings)
    return [outcome.loss.detach(), outcome.output.detach(), *gradients(outcome.loss, model)]


@EVERY
def test_the_same_seed_and_step_give_the_same_bits_whatever_came_before(name: str) -> None:
    one, other = net(), net()
    first = make(name)
    for _ in range(3):
        found = step_of(first, one)  # buffers move, so both networks take the same way
    used = make(name)
    for step in range(3):
        again = step_of(used, other, step=step)
    assert_same(found, again)


@pytest.mark.parametrize("name", RANDOM)
def test_another_seed_gives_another_step(name: str) -> None:
    outputs = [step_of(make(name, seed=seed), net())[1] for seed in (1, 2)]
    assert_different(outputs[:1], outputs[1:])


@EVERY
@pytest.mark.usefixtures("untouched_generators")
def test_generators_and_the_batch_stay_as_they_were(name: str) -> None:
    model, (x, y) = net(), few()
    before = [x.clone(), y.clone()]
    make(name)(model, x, y).loss.backward()
    assert_same([x, y], before)
    assert not x.requires_grad
    assert hooks_in(model) == 0
    assert model.training
    assert all(module.training for module in model.modules())


@EVERY
@pytest.mark.parametrize("mode", ["eval", "no_grad"])
def test_outside_of_training_network_and_loss_are_plain(name: str, mode: str) -> None:
    model, (x, y) = net(), few()
    model.train(mode == "no_grad")
    twin = copy.deepcopy(model)
    with torch.set_grad_enabled(mode == "eval"):
        outcome = make(name)(model, x, y)
        expected = twin(x)
    assert_same([outcome.output, outcome.loss], [expected, F.cross_entropy(expected, y)])
    assert outcome.draw.step == -1


@EVERY
@pytest.mark.parametrize("size", [1, 2, 7])
def test_odd_batches_and_a_batch_of_one(name: str, size: int) -> None:
    outcome = make(name)(net(), *few(size))
    assert outcome.output.shape == (size, 10)
    assert torch.isfinite(outcome.loss)
    assert outcome.draw.partner.sort().values.tolist() == list(range(size))
    assert ((outcome.draw.weight >= 0) & (outcome.draw.weight <= 1)).all()


@EVERY
def test_a_step_can_be_replayed_in_any_mode(name: str) -> None:
    model, (x, y) = net(), few()
    method = make(name)
    made = method(model, x, y, step=5)
    again = [method.replay(made.draw)(net().eval(), x, y) for _ in range(2)]
    assert_same([again[0].output, again[0].loss], [again[1].output, again[1].loss])
    assert_same([again[0].draw.partner, again[0].draw.weight], [made.draw.partner, made.draw.weight])


@pytest.mark.parametrize("name", RANDOM)
def test_a_replayed_step_is_not_a_plain_one(name: str) -> None:
    model, (x, y) = net(), few()
    method = make(name)
    made = method(model, x, y, step=5)
    plain = net().eval()
    assert_different([method.replay(made.draw)(plain, x, y).loss], [F.cross_entropy(plain(x), y)])


@EVERY
def test_its_state_is_a_few_integers(name: str) -> None:
    first, second = make(name), make(name, seed=9)
    model = net()
    step_of(first, model)
    second.load_state_dict(first.state_dict())
    assert first.state_dict() == {"seed": 1, "step": 1}
    assert second.state_dict() == first.state_dict()
    assert_same(step_of(second, net()), step_of(first, net()))


@EVERY
def test_copies_and_pickles_draw_the_same(name: str) -> None:
    method = make(name)
    expected = step_of(method, net(), step=4)
    for twin in (copy.deepcopy(method), pickle.loads(pickle.dumps(method))):
        assert_same(step_of(twin, net(), step=4), expected)
        assert repr(twin) == repr(method)


@EVERY
def test_it_tells_its_numbers_and_checks_the_network(name: str) -> None:
    assert "seed=1" in repr(make(name)) or name == "label_smoothing"
    assert "input" in str(make(name).check(net(), few()[0]))


@pytest.mark.parametrize("name", ALONE)
def test_an_unknown_setting_is_refused_with_the_nearest(name: str) -> None:
    known = next(setting for setting in SCHEMES[name].settings if setting != "seed")
    with pytest.raises(UsageError, match=f"unknown setting '{known}x'.*did you mean '{known}'"):
        nfm.scheme(name, **{f"{known}x": 1})


@EVERY
def test_it_trains_and_resumes_to_the_byte(tmp_path: Path, name: str) -> None:
    settings = {"name": "small_conv", "epochs": 1}
    train(tmp_path / "whole", method=make(name), **settings)
    for interrupt in (1, 1, None):
        with suppress(Interrupted):
            train(tmp_path / "cut", method=make(name), resume=True, interrupt=interrupt, **settings)
    assert_same_result(tmp_path / "whole", tmp_path / "cut")
    (epoch,) = rows_of(tmp_path / "whole", "epoch")
    assert 0 <= epoch["train_accuracy_weighted"] <= 1
    assert 0 <= epoch["probe_accuracy"] <= 1


@EVERY
def test_every_parameter_gets_a_gradient(name: str) -> None:
    model = net()
    outcome = make(name)(model, *few())
    assert all(float(gradient.abs().max()) > 0 for gradient in gradients(outcome.loss, model))


@EVERY
def test_half_precision(name: str) -> None:
    model = net().to(torch.bfloat16)
    x, y = few()
    outcome = make(name)(model, x.to(torch.bfloat16), y)
    assert outcome.output.dtype == torch.bfloat16
    assert torch.isfinite(outcome.loss)


@EVERY
def test_autocast(name: str) -> None:
    model, (x, y) = net(), few()
    with torch.autocast("cpu", torch.bfloat16):
        outcome = make(name)(model, x, y)
    outcome.loss.backward()
    assert torch.isfinite(outcome.loss)
    assert not same([outcome.output.float()], [make(name)(net(), x, y).output])


@pytest.mark.slow
@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize("name", [*(name for name in ALONE if name not in PRESETS), *COMPOSED, "timed"])
def test_a_compiled_network_is_trained_alike(name: str) -> None:
    def made() -> Any:
        return make("nfm + label_smoothing", start=1, end=3) if name == "timed" else make(name)

    eager, model = net(), net()
    scheme = made()
    with ready_to_compile(model, scheme):
        forward = torch.compile(model, backend="aot_eager", fullgraph=True)
        for step in range(5):
            expected, found = made()(eager, *few(), step=step), scheme(forward, *few(), step=step)
            assert_close([found.output, found.loss], [expected.output, expected.loss], relative=1e-4)
            ours, theirs = flat(gradients(found.loss, model)), flat(gradients(expected.loss, eager))
            assert_close([ours], [theirs], relative=1e-3)
    assert hooks_in(model) == 0
