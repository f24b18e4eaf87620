"""The presets: one class, other numbers. Noise injection, mixup and manifold mixup are special cases."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nfm.core.noise import Noise
from nfm.errors import UsageError, did_you_mean
from nfm.method.feature_mixup import NFM_NOISE, NoisyFeatureMixup
from nfm.method.sites import INPUT
from nfm.registry import Registry


@dataclass(frozen=True)
class Preset:
    """The numbers of one scheme; `sites` None means the network's default."""

    sites: tuple[str, ...] | None
    alpha: float
    noise: Noise
    about: str


PRESETS: Registry[Preset] = Registry("preset")


def _add(name: str, sites: tuple[str, ...] | None, alpha: float, noise: Noise, about: str) -> None:
    PRESETS.add(name, Preset(sites, alpha, noise, about))


_quiet, _authors = Noise(), Noise.authors
_add("erm", (INPUT,), 0.0, _quiet, "plain training")
_add("noise_injection", None, 0.0, NFM_NOISE, "noise at a random site, nothing mixed")
_add("mixup", (INPUT,), 1.0, _quiet, "inputs mixed (Zhang et al. 2017)")
_add("noisy_mixup", (INPUT,), 1.0, NFM_NOISE, "inputs mixed, with noise")
_add("manifold_mixup", None, 1.0, _quiet, "features mixed at a random site (Verma et al. 2019)")
_add("nfm", None, 1.0, NFM_NOISE, "noisy feature mixup, the paper's equation")
# The published tables were made with the authors' noise: about a third of the strength (docs/differences.md, row 1).
_add("noise_injection_authors", (INPUT,), 0.0, _authors(0.2), 'the tables\' "Baseline + Noise"')
_add(
    "noisy_mixup_authors",
    (INPUT,),
    1.0,
    _authors(0.2, 0.1),
    "noisy mixup as commanded (its label says .4, .2)",
)
_add("nfm_authors", None, 1.0, _authors(0.4, 0.2), "NFM as in the published tables")
_add("nfm_authors_high", None, 1.0, _authors(1.0, 0.5), "NFM* of the paper: more noise")

SETTINGS = ("sites", "alpha", "beta", "noise", "weights", "dominant", "inputs", "seed")


def preset(name: str, **overrides: Any) -> NoisyFeatureMixup:
    """Return the method called `name`, with `overrides` of any of its settings.

    >>> preset("mixup", alpha=0.2)
    NoisyFeatureMixup(sites: input; alpha=0.2; one weight a batch; Noise(add=0, mult=0; rms 0, 0); seed=0)
    """
    numbers = PRESETS[name]
    for key in overrides:
        if key not in SETTINGS:
            raise UsageError(
                f"unknown setting {key!r} of preset {name!r}; known: {', '.join(SETTINGS)}"
                f"{did_you_mean(key, SETTINGS)}"
            )
    settings: dict[str, Any] = {"sites": numbers.sites, "alpha": numbers.alpha, "noise": numbers.noise}
    return NoisyFeatureMixup(**(settings | overrides))
