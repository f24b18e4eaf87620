"""Every scheme by name, alone or composed: ``scheme("nfm + label_smoothing")``, ``scheme("0.5 mixup | 0.5 cutmix")``.

A text is a choice (``|``, one a step, by chance) between sums (``+``) of names. A sum has one part that trains, at
most one that attacks the batch before, and at most one that changes the criterion.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from nfm.core.noise import Noise
from nfm.errors import UsageError, did_you_mean
from nfm.method.adversarial import Adversarial
from nfm.method.augmix import AugMix
from nfm.method.composition import OneOf, Sum, Timed, check_times
from nfm.method.cutmix import CutMix
from nfm.method.label_smoothing import LabelSmoothing
from nfm.method.noisymix import NoisyMix
from nfm.method.presets import PRESETS, SETTINGS, preset
from nfm.method.puzzlemix import PuzzleMix
from nfm.method.scheme import Method
from nfm.registry import Registry

Role = Literal["train", "attack", "criterion"]
SEED = "seed"


@dataclass(frozen=True)
class Entry:
    """A scheme: how to build it, a line about it, its settings, and those its tests use (needed to register)."""

    build: Callable[..., Any]
    about: str
    settings: tuple[str, ...]
    tested: Mapping[str, Any] | None
    role: Role = "train"


SCHEMES: Registry[Entry] = Registry("scheme")


def register(
    name: str,
    build: Callable[..., Any],
    about: str,
    *,
    tested: Mapping[str, Any] | None,
    role: Role = "train",
) -> None:
    """Add a scheme whose settings are the arguments of `build`."""
    SCHEMES.add(name, Entry(build, about, tuple(inspect.signature(build).parameters), tested, role))


for _name in PRESETS:
    SCHEMES.add(_name, Entry(functools.partial(preset, _name), PRESETS[_name].about, SETTINGS, tested={}))
register(
    "label_smoothing", LabelSmoothing, "labels shared with all classes (Szegedy et al. 2016)",
    role="criterion", tested={"level": 0.2},
)  # fmt: skip
register(
    "adversarial", Adversarial, "attacked by projected gradients before each step (Madry et al. 2018)",
    role="attack", tested={"steps": 4},
)  # fmt: skip
register("cutmix", CutMix, "a box of the partner pasted in (Yun et al. 2019)", tested={})
register(
    "augmix", AugMix, "chains of augmentations, views that must agree (Hendrycks et al. 2020)", tested={}
)
register("puzzlemix", PuzzleMix, "salient blocks of two images put together (Kim et al. 2020)", tested={})
register("noisymix", NoisyMix, "NFM on AugMix's views, which must agree (Erichson et al. 2022)", tested={})


@dataclass(frozen=True)
class Term:
    """The names of one sum, and its probability, None for an equal share."""

    names: tuple[str, ...]
    probability: float | None = None

    def named(self, role: Role) -> str | None:
        """Return the one part with `role`; refuse two."""
        found = [name for name in self.names if SCHEMES[name].role == role]
        if len(found) > 1:
            raise UsageError(
                f"scheme {' + '.join(self.names)!r}: expected one part that does this, got {', '.join(found)}: "
                f"{_REASONS[role]}; to draw one of them each step, write {' | '.join(found)!r}"
            )
        return found[0] if found else None


_REASONS: dict[Role, str] = {
    "train": "a forward pass is mixed once, and its labels with it",
    "attack": "an attack on an attacked batch leaves the ball of the first",
    "criterion": "labels are smoothed once",
}


def parse(text: str) -> tuple[Term, ...]:
    """Return the sums that `text` names; refuse unknown names and sums without a meaning.

    >>> parse("0.3 nfm + label_smoothing | 0.7 erm")
    (Term(names=('nfm', 'label_smoothing'), probability=0.3), Term(names=('erm',), probability=0.7))
    """
    if not isinstance(text, str):
        raise UsageError(f"scheme: expected a text such as 'nfm' or 'nfm + label_smoothing', got {text!r}")
    terms = tuple(_term(part) for part in text.split("|"))
    told = [term.probability is not None for term in terms]
    if any(told) and not all(told):
        raise UsageError(
            f"scheme {text!r}: expected a probability for each of {len(terms)} schemes or for none"
        )
    if told == [True]:
        name = " + ".join(terms[0].names)
        raise UsageError(
            f"scheme {text!r}: expected a probability in a choice only, got {terms[0].probability:g} for one "
            f"scheme; write '0.5 {name} | 0.5 erm' for plain training in half of the steps"
        )
    return terms


def _term(text: str) -> Term:
    first, _, rest = text.strip().partition(" ")
    probability = _number(first)
    names = tuple(name.strip() for name in (rest if probability is not None else text).split("+"))
    term = Term(names, probability)
    for role in _REASONS:
        term.named(role)
    return term


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def scheme(
    text: str, *, seed: int = 0, start: int = 0, end: int | None = None, ramp: int = 0, **settings: Any
) -> Method:
    """Return the scheme that `text` names, with `settings` of any of its parts.

    It acts from step `start` to before `end`; its levels rise over the first `ramp` steps. A setting that
    several parts have is given to one by name: ``scheme("mixup | cutmix", cutmix={"alpha": 0.5})``.

    >>> scheme("label_smoothing + cutmix", level=0.2)
    CutMix(sites: input; alpha=1; one box a batch; seed=0) + label_smoothing(level=0.2)
    """
    terms = parse(text)
    check_times(start, end, ramp)
    shared = _settings_by_name(
        text, tuple(dict.fromkeys(name for term in terms for name in term.names)), settings
    )
    built = [_build(term, shared, seed) for term in terms]
    made = built[0]
    if len(built) > 1:
        shares = None if terms[0].probability is None else [term.probability or 0.0 for term in terms]
        made = OneOf(built, shares, seed=seed)
    return Timed(made, start=start, end=end, ramp=ramp) if start or end is not None or ramp else made


def _build(term: Term, settings: Mapping[str, Mapping[str, Any]], seed: int) -> Method:
    def part(role: Role) -> Any:
        name = term.named(role)
        if name is None:
            return None
        keyed = {SEED: seed} if SEED in SCHEMES[name].settings else {}
        return SCHEMES[name].build(**keyed, **settings[name])

    attacker, smoothing = part("attack"), part("criterion")
    main = part("train") or preset("erm", seed=seed)
    return (
        main
        if attacker is smoothing is None
        else Sum(main, attacker=attacker, smoothing=smoothing, seed=seed)
    )


def _settings_by_name(
    text: str, names: Iterable[str], settings: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """Return the settings of each part; refuse one that no part has, or that several have."""
    own: dict[str, dict[str, Any]] = {name: {} for name in names}
    for key, value in settings.items():
        if key in own and isinstance(value, Mapping):
            for inner, content in value.items():
                own[_owner(text, {key: own[key]}, inner)][inner] = content
        else:
            own[_owner(text, own, key)][key] = value
    return own


def _owner(text: str, names: Mapping[str, Any], key: str) -> str:
    owners = [name for name in names if key in SCHEMES[name].settings]
    if len(owners) > 1:
        examples = ", ".join(f"{name}={{{key!r}: ...}}" for name in owners)
        raise UsageError(f"scheme {text!r}: several parts have a setting {key!r}; say whose: {examples}")
    if not owners:
        known = sorted({setting for name in names for setting in SCHEMES[name].settings} - {SEED})
        raise UsageError(
            f"unknown setting {key!r} of scheme {text!r}; known: {', '.join(known)}{did_you_mean(key, known)}"
        )
    return owners[0]


def default_noise(text: str) -> Noise:
    """Return the noise of the one part of a scheme that has noise, for its settings to be changed one by one."""
    names = [name for term in parse(text) for name in term.names if "noise" in SCHEMES[name].settings]
    if len(names) != 1:
        raise UsageError(
            f"scheme {text!r}: expected one part with noise to change, got {', '.join(names) or 'none'}"
        )
    return SCHEMES[names[0]].build().noise
