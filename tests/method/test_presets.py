"""The presets are the same class with other numbers: those of the table."""

from __future__ import annotations

import pytest

import nfm
from nfm.errors import UsageError
from nfm.method.presets import PRESETS

PAPER, AUTHORS, QUIET = nfm.Noise.paper, nfm.Noise.authors, nfm.Noise()
TABLE = {
    "erm": (("input",), 0, QUIET),
    "noise_injection": (None, 0, PAPER(0.4, 0.2)),
    "mixup": (("input",), 1, QUIET),
    "noisy_mixup": (("input",), 1, PAPER(0.4, 0.2)),
    "manifold_mixup": (None, 1, QUIET),
    "nfm": (None, 1, PAPER(0.4, 0.2)),
    "noise_injection_authors": (("input",), 0, AUTHORS(0.2, 0)),
    "noisy_mixup_authors": (("input",), 1, AUTHORS(0.2, 0.1)),
    "nfm_authors": (None, 1, AUTHORS(0.4, 0.2)),
    "nfm_authors_high": (None, 1, AUTHORS(1.0, 0.5)),
}


def test_the_table_is_whole() -> None:
    assert list(PRESETS) == list(TABLE)
    assert all(PRESETS[name].about for name in PRESETS)


@pytest.mark.parametrize("name", list(TABLE))
def test_the_numbers_are_those_of_the_table(name: str) -> None:
    sites, alpha, noise = TABLE[name]
    method = nfm.preset(name)
    assert type(method) is nfm.NoisyFeatureMixup
    assert (method.sites, method.alpha, method.beta, method.noise) == (sites, alpha, alpha, noise)
    assert (method.weights, method.dominant, method.seed) == ("batch", False, 0)


def test_the_default_method_is_nfm() -> None:
    assert repr(nfm.NoisyFeatureMixup()) == repr(nfm.preset("nfm"))


def test_any_setting_can_be_overridden() -> None:
    method = nfm.preset(
        "mixup", sites=["a", "b"], alpha=0.2, beta=0.5, noise=nfm.Noise(0.1), weights="sample", dominant=True,
        inputs="x", seed=9,
    )  # fmt: skip
    assert (method.sites, method.alpha, method.beta) == (("a", "b"), 0.2, 0.5)
    assert (method.noise, method.weights, method.dominant) == (nfm.Noise(0.1), "sample", True)
    assert (method.inputs, method.seed) == (("x",), 9)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: nfm.preset("manifold"),
            "unknown preset 'manifold'; known: erm, .*did you mean 'manifold_mixup'",
        ),
        (lambda: nfm.preset("nfm", alhpa=1), "unknown setting 'alhpa' of preset 'nfm'.*did you mean 'alpha'"),
        (lambda: nfm.preset("nfm", weights="each"), "weights: expected 'batch' or 'sample', got 'each'"),
        (lambda: nfm.preset("nfm", noise=0.4), r"noise: expected nfm\.Noise\(add, mult\), got 0\.4"),
        (lambda: nfm.preset("nfm", inputs=[]), "inputs: expected one or more names"),
    ],
)
def test_unknown_names_and_bad_values_are_refused(call, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        call()


def test_a_method_tells_what_it_does() -> None:
    assert repr(nfm.preset("nfm_authors", sites=["input", "a"], beta=2.0, seed=3)) == (
        "NoisyFeatureMixup(sites: input, a; alpha=1, beta=2; one weight a batch; Noise(add=0.4 beta-scaled, "
        "mult=0.2 uniform beta-scaled; rms 0.131, 0.0378); seed=3)"
    )
    assert "the network's default" in repr(nfm.preset("nfm"))
