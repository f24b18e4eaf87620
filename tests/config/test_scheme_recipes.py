"""Schemes in recipes and on the command line: compositions, options of parts, times in epochs."""

from __future__ import annotations

from pathlib import Path

import pytest

from nfm.cli import main
from nfm.config.build import build_method, build_run
from nfm.config.read import read_config
from nfm.config.schema import MethodConfig
from nfm.core.noise import Noise
from nfm.errors import ConfigError, UsageError
from nfm.method.composition import OneOf, Sum, Timed
from nfm.method.schemes import SCHEMES
from running import train

TINY = ["data.name=digits", "data.subset=40", "train.batch_size=16", "train.epochs=1"]


def recipe(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "recipe.toml"
    path.write_text(text)
    return path


def test_a_recipe_names_a_composition(tmp_path: Path) -> None:
    text = '[method]\nscheme = "nfm + label_smoothing"\nalpha = 0.2\nnoise = { add = 0.7 }\noptions = { level = 0.3 }\n'
    config = read_config(recipe(tmp_path, text))
    method = build_method(config.method, seed=5)
    assert isinstance(method, Sum)
    assert (method.main.alpha, method.main.seed, method.smoothing.level) == (0.2, 5, 0.3)
    assert method.main.noise == Noise(0.7, 0.2)  # what is not changed is the scheme's own


def test_options_of_one_part_by_its_name(tmp_path: Path) -> None:
    text = '[method]\nscheme = "0.25 mixup | 0.75 cutmix"\n[method.options.cutmix]\nalpha = 0.5\n'
    method = build_method(read_config(recipe(tmp_path, text)).method, seed=0)
    assert isinstance(method, OneOf)
    assert method.probabilities == (0.25, 0.75)
    assert [scheme.alpha for scheme in method.schemes] == [1.0, 0.5]


@pytest.mark.parametrize("accumulate", [1, 2])
def test_times_are_told_in_epochs(accumulate: int) -> None:
    """40 examples in batches of 16 are 3 steps; the scheme is called once for each part of a batch."""
    sets = [
        "method.scheme=nfm",
        "method.start=2",
        "method.end=5",
        "method.ramp=1",
        f"train.accumulate={accumulate}",
    ]
    method = build_run(read_config(None, TINY + sets)).method
    assert isinstance(method, Timed)
    assert (method.start, method.end, method.ramp) == (6 * accumulate, 15 * accumulate, 3 * accumulate)


@pytest.mark.parametrize(
    ("sets", "message"),
    [
        (["method.scheme=mixup + cutmix"], "method: scheme 'mixup . cutmix': .*a forward pass is mixed once"),
        (["method.scheme=nfmm"], "unknown scheme 'nfmm'.*did you mean 'nfm'"),
        (["method.start=-1"], "start: expected epochs, 0 or more, got -1"),
        (["method.start=3", "method.end=2"], r"end: expected an epoch after the start \(3\), got 2"),
    ],
)
def test_what_has_no_meaning_is_refused_when_read(sets: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_config(None, TINY + sets)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            MethodConfig("augmix", options={"sevrity": 1}),
            "unknown setting 'sevrity'.*did you mean 'severity'",
        ),
        (MethodConfig("augmix", noise={"add": 1.0}), "expected one part with noise to change, got none"),
        (
            MethodConfig("nfm | noisymix", noise={"add": 1.0}),
            "one part with noise to change, got nfm, noisymix",
        ),
        (MethodConfig("cutmix", dominant=True), "unknown setting 'dominant' of scheme 'cutmix'"),
        (MethodConfig("cutmix", ramp=1.0), "expected a scheme with levels to put on a schedule"),
    ],
)
def test_settings_that_no_part_has_are_refused_when_built(config: MethodConfig, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        build_method(config, seed=0)


def test_the_list_shows_every_scheme(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "schemes"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(SCHEMES)
    assert all(len(line.split()) > 1 for line in lines)


def test_a_changed_setting_of_a_part_is_another_run(tmp_path: Path) -> None:
    from nfm.method.schemes import scheme

    text = "cutmix + label_smoothing"
    train(tmp_path / "run", method=scheme(text, level=0.1), name="small_conv", epochs=1)
    with pytest.raises(ConfigError, match="its settings differ"):
        train(tmp_path / "run", method=scheme(text, level=0.2), name="small_conv", epochs=1, resume=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*SCHEMES, "adversarial + nfm", "0.5 mixup | 0.5 cutmix"])
def test_every_scheme_trains_on_digits_from_the_command_line(tmp_path: Path, name: str) -> None:
    flags = [
        "--data",
        "digits",
        "--subset",
        "200",
        "--model",
        "small_conv",
        "--epochs",
        "1",
        "--batch-size",
        "50",
    ]
    assert main(["train", *flags, "--scheme", name, "--out", str(tmp_path / "run")]) == 0
    assert (tmp_path / "run" / "rows.jsonl").exists()
