"""Compositions: sums, chances, times and levels on a schedule; what has no meaning is refused with a reason."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import nfm
from comparing import assert_different, assert_same, gradients
from nets import ConvNet, Mlp, batch, build
from nfm.errors import UsageError
from nfm.method.composition import OneOf, Sum, Timed
from nfm.method.cutmix import CutMix
from nfm.method.schemes import SCHEMES, parse

SITES = {"nfm": {"sites": Mlp.sites}}


def test_a_sum_is_its_parts() -> None:
    made = nfm.scheme("label_smoothing + cutmix", level=0.2, alpha=0.5, seed=4)
    assert isinstance(made, Sum)
    assert isinstance(made.main, CutMix)
    assert (made.main.alpha, made.main.seed, made.smoothing.level) == (0.5, 4, 0.2)
    assert made.attacker is None


def test_a_single_name_is_the_scheme_itself() -> None:
    assert repr(nfm.scheme("nfm", alpha=0.3, seed=2)) == repr(nfm.preset("nfm", alpha=0.3, seed=2))


def test_the_draw_of_a_sum_is_that_of_its_main_part() -> None:
    x, y = batch(6, 4)
    alone = nfm.scheme("nfm", sites=Mlp.sites, seed=4)(build(Mlp), x, y, step=2)
    summed = nfm.scheme("nfm + label_smoothing", sites=Mlp.sites, seed=4)(build(Mlp), x, y, step=2)
    assert_same([summed.output, summed.draw.partner], [alone.output, alone.draw.partner])
    assert_different([summed.loss], [alone.loss])


def test_probabilities_are_those_asked_for_and_keyed_by_the_step() -> None:
    made = nfm.scheme("0.2 nfm | 0.8 erm", nfm={"sites": Mlp.sites}, seed=1)
    picks = [made.at(step) is made.schemes[0] for step in range(4000)]
    assert abs(sum(picks) / 4000 - 0.2) < 4 * (0.2 * 0.8 / 4000) ** 0.5
    assert picks[:100] == [made.at(step) is made.schemes[0] for step in range(100)]
    other = nfm.scheme("0.2 nfm | 0.8 erm", nfm={"sites": Mlp.sites}, seed=2)
    assert picks[:100] != [other.at(step) is other.schemes[0] for step in range(100)]


def test_equal_chances_without_probabilities() -> None:
    made = nfm.scheme("erm | mixup | cutmix")
    assert made.probabilities == (1 / 3,) * 3


def test_each_step_is_that_of_the_scheme_drawn() -> None:
    x, y = batch(6, 3, 4, 4)
    made = nfm.scheme("mixup | cutmix", seed=3)
    seen = set()
    for step in range(12):
        scheme = made.at(step)
        expected = scheme(build(ConvNet), x, y, step=step)
        found = made(build(ConvNet), x, y, step=step)
        assert_same([found.output, found.loss], [expected.output, expected.loss])
        seen.add(type(scheme).__name__)
    assert seen == {"NoisyFeatureMixup", "CutMix"}


def test_a_scheme_for_a_time() -> None:
    x, y = batch(6, 4)
    made = nfm.scheme("nfm", sites=Mlp.sites, start=2, end=4)
    plain = build(Mlp)(x)
    acted = [not torch.equal(made(build(Mlp), x, y).output, plain) for _ in range(6)]
    assert acted == [False, False, True, True, False, False]
    outcome = made(build(Mlp), x, y, step=0)
    assert_same([outcome.loss], [F.cross_entropy(plain, y)])
    net = build(Mlp)
    assert_same(gradients(made(net, x, y, step=0).loss, net), gradients(F.cross_entropy(net(x), y), net))


def test_a_scheme_in_its_time_is_the_scheme() -> None:
    x, y = batch(6, 4)
    timed = nfm.scheme("nfm", sites=Mlp.sites, start=2)(build(Mlp), x, y, step=5)
    alone = nfm.scheme("nfm", sites=Mlp.sites)(build(Mlp), x, y, step=5)
    assert_same([timed.output, timed.loss], [alone.output, alone.loss])


def test_levels_rise_over_the_ramp() -> None:
    made = nfm.scheme("nfm", sites=Mlp.sites, start=2, ramp=4)
    levels = [made(build(Mlp), *batch(6, 4), step=step).draw.levels for step in (2, 3, 5, 6, 9)]
    assert levels == [(0.4 * f, 0.2 * f) for f in (0.0, 0.25, 0.75, 1.0, 1.0)]


def test_levels_of_a_sum_rise_together() -> None:
    made = nfm.scheme("nfm + label_smoothing", sites=Mlp.sites, level=0.4, ramp=4)
    half = made.at(2)
    assert half.smoothing.level == 0.2
    assert (half.main.noise.add, half.main.noise.mult) == (0.2, 0.1)
    cut = nfm.scheme("cutmix + label_smoothing", level=0.4, ramp=4).at(2)
    assert cut.smoothing.level == 0.2  # CutMix has no level, and stays as it is
    chance = nfm.scheme("nfm | noisy_mixup", nfm=SITES["nfm"], ramp=4).at(1)
    assert [scheme.noise.add for scheme in chance.schemes] == [0.1, 0.1]


def test_what_has_no_level_stays_as_it_is_in_a_choice() -> None:
    made = nfm.scheme("0.5 erm | 0.5 nfm", nfm=SITES["nfm"], ramp=4)
    plain, noisy = made.at(1).schemes
    assert plain is made.scheme.schemes[0]
    assert (noisy.noise.add, made.at(4).schemes[1].noise.add) == (0.1, 0.4)


@pytest.mark.parametrize("text", ["cutmix", "mixup", "erm", "mixup | cutmix"])
def test_what_has_no_level_has_no_ramp(text: str) -> None:
    with pytest.raises(UsageError, match="expected a scheme with levels to put on a schedule"):
        nfm.scheme(text, ramp=5)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mixup + cutmix", r"got mixup, cutmix: a forward pass is mixed once.*write 'mixup \| cutmix'"),
        ("erm + nfm", "got erm, nfm: a forward pass is mixed once"),
        ("label_smoothing + label_smoothing", "labels are smoothed once"),
        ("nfm + cutmixx", "unknown scheme 'cutmixx'; known: .*did you mean 'cutmix'"),
        ("nfm +", "unknown scheme ''"),
        ("", "unknown scheme ''"),
        ("0.5 nfm | erm", "expected a probability for each of 2 schemes or for none"),
        ("0.5 nfm | 0.6 erm", r"expected 2 probabilities, one a scheme, .*1 in all, got 0\.5, 0\.6"),
        ("-0.5 nfm | 1.5 erm", "0 or greater and 1 in all"),
        (7, "expected a text such as 'nfm'"),
        ("0.5 nfm", r"got 0\.5 for one scheme; write '0\.5 nfm \| 0\.5 erm'"),
        ("2 nfm + label_smoothing", r"got 2 for one scheme; write '0\.5 nfm \+ label_smoothing \| 0\.5 erm'"),
        ("nan nfm | 0.5 erm", "expected 2 probabilities, .*got nan, 0.5"),
        ("inf nfm | 0.5 erm", "expected 2 probabilities"),
    ],
)
def test_texts_without_a_meaning_are_refused_with_a_reason(text, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        nfm.scheme(text)


@pytest.mark.parametrize(
    ("text", "settings", "message"),
    [
        (
            "mixup | cutmix",
            {"alpha": 1.0},
            r"several parts have a setting 'alpha'; say whose: mixup=\{'alpha'",
        ),
        (
            "nfm + label_smoothing",
            {"levle": 1},
            "unknown setting 'levle' of scheme 'nfm .*did you mean 'level'",
        ),
        ("mixup | cutmix", {"cutmix": {"alhpa": 1}}, "unknown setting 'alhpa'.*did you mean 'alpha'"),
        ("nfm", {"start": 5, "end": 5}, "expected whole steps with 0 <= start < end"),
        ("nfm", {"ramp": -1}, "expected whole steps"),
        ("nfm", {"start": 0.5}, "expected whole steps"),
        ("nfm", {"start": True}, "expected whole steps.*start True"),
        ("nfm", {"start": False}, "expected whole steps.*start False"),
        ("nfm", {"end": True}, "expected whole steps.*end True"),
        ("nfm", {"ramp": True}, "expected whole steps.*ramp True"),
        ("nfm", {"dominant": "no"}, "dominant: expected True or False, got 'no'"),
    ],
)
def test_settings_without_a_meaning_are_refused(text: str, settings: dict, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        nfm.scheme(text, **settings)


def test_settings_go_to_the_part_that_is_named() -> None:
    made = nfm.scheme("mixup | cutmix", cutmix={"alpha": 0.5}, mixup={"alpha": 2.0})
    assert [scheme.alpha for scheme in made.schemes] == [2.0, 0.5]


def test_a_composition_cannot_be_attached() -> None:
    with pytest.raises(UsageError, match=r"acts inside one forward pass to attach.*call it"):
        nfm.attach(build(Mlp), "nfm + label_smoothing")


def test_every_text_of_names_parses() -> None:
    for name in SCHEMES:
        (term,) = parse(name)
        assert term.names == (name,)
    assert [term.names for term in parse("erm|mixup +label_smoothing")] == [
        ("erm",),
        ("mixup", "label_smoothing"),
    ]


def test_a_time_of_a_chance_of_sums_tells_itself() -> None:
    made = nfm.scheme("0.5 erm | 0.5 cutmix + label_smoothing", start=1, seed=3)
    assert isinstance(made, Timed)
    assert isinstance(made.scheme, OneOf)
    assert repr(made).startswith("(0.5 NoisyFeatureMixup(sites: input; alpha=0;")
    assert repr(made).endswith("label_smoothing(level=0.1); seed=3) from step 1 to the end")


def test_an_attached_method_does_not_act_in_the_plain_steps_of_another() -> None:
    """A scheme that is called decides what happens in its step, whatever is attached to the network."""
    x, y = batch(6, 4)
    net = build(Mlp)
    plain = build(Mlp)(x)
    with nfm.attach(net, "nfm", sites=Mlp.sites) as mixer:
        assert_same([nfm.scheme("nfm", sites=Mlp.sites, start=9)(net, x, y, step=0).output], [plain])
        assert mixer.method.step == 0
        assert_different([net(x)], [plain])
